"""Properties files are read as Java reads them, and nothing that they hold gets into an error."""

from pathlib import Path

import pytest

from headgate.base.errors import UsageError
from headgate.kafka.client_properties import parse_jaas, parse_properties, read_properties

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a\t:\f b", {"a": "b"}),
        ("a==b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("  a=b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("", {}),
        ("\n \t\n", {}),
    ],
)
def test_a_key_ends_at_the_first_equals_sign_colon_or_space(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# a=b\n! c=d\n  # e=f\ng=h", {"g": "h"}),
        ("a=b # no comment", {"a": "b # no comment"}),
        ("# a comment is not continued \\\na=b", {"a": "b"}),
        ("a=b\\\n# c", {"a": "b# c"}),
    ],
)
def test_a_comment_is_a_line_that_begins_as_one(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b \\\r\n\tc \\\n d", {"a": "b c d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc", {"a": "b\\c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a\\\n=b", {"a": "b"}),
    ],
)
def test_an_odd_number_of_backslashes_continues_a_line(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"a\ b=c", {"a b": "c"}),
        (r"a\=b\:c=d", {"a=b:c": "d"}),
        (r"a=\t\n\r\f\\\q\#", {"a": "\t\n\r\f\\q#"}),
        (r"a=\u00e9\u20AC", {"a": "é€"}),
        (r"\u0061=b", {"a": "b"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
    ],
)
def test_escapes_are_javas(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("value", [r"secret\u12", r"secret\u", r"secret\uzzzz", r"secret\ud83d"])
def test_a_broken_escape_is_named_by_its_line_and_shows_nothing(value: str) -> None:
    with pytest.raises(UsageError, match=r"^line 2: ") as problem:
        parse_properties(f"a=b\nc={value}\n")
    assert "secret" not in str(problem.value)


def test_a_file_is_latin_1_as_it_is_to_java(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_bytes(b"a=\xe9")
    assert read_properties(tmp_path / "client.properties") == {"a": "é"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.properties cannot be read: No such file"):
        read_properties(tmp_path / "nowhere.properties")
    (tmp_path / "broken.properties").write_text("a=\\u")
    with pytest.raises(UsageError, match=r"broken\.properties, line 1: "):
        read_properties(tmp_path / "broken.properties")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('username="alice" password="pw"', {"username": "alice", "password": "pw"}),
        ("username=alice password='p w'", {"username": "alice", "password": "p w"}),
        (r'password="a\"b\\c;d=e"', {"password": 'a"b\\c;d=e'}),
        (r'password="\101\t\q"', {"password": "A\tq"}),
        ('password = "pw" // no more', {"password": "pw"}),
        ('/* who */ username="al\nice" ', None),
        ("", {}),
    ],
)
def test_a_login_line_is_a_module_a_flag_and_options(options: str, expected: dict[str, str] | None) -> None:
    if expected is None:
        with pytest.raises(UsageError):
            parse_jaas(f"{PLAIN} required {options};")
        return
    login = parse_jaas(f"{PLAIN} required {options}\n ;")
    assert (login.name, login.options) == (PLAIN, expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        f'{PLAIN} required username="alice" password="not-for-anybody"',
        f'{PLAIN} username="alice" password="not-for-anybody";',
        f'{PLAIN} required username="alice" password;',
        f'{PLAIN} required username "alice" password "not-for-anybody";',
        f'{PLAIN} required password="not-for-anybody;',
        f"{PLAIN} required password=not-for-anybody! ;",
        f'{PLAIN} required password="not-for-anybody"; {PLAIN} required;',
    ],
)
def test_what_is_no_login_line_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(UsageError, match=r"^sasl\.jaas\.config ") as problem:
        parse_jaas(text)
    assert "not-for-anybody" not in str(problem.value)
    assert "alice" not in str(problem.value)


def test_a_login_module_does_not_show_its_options() -> None:
    login = parse_jaas(f'{PLAIN} required password="not-for-anybody";')
    assert "not-for-anybody" not in f"{login} {login!r} {[login]}"
