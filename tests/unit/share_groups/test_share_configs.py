"""The configs of KIP-1316 and KIP-1191 as the documents name them, and refusals as Kafka's own ConfigDef words them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.share_groups.model.group_configs import (
    BREAKER_ENABLE,
    COPY_RECORD,
    DLQ_TOPIC,
    LIMIT,
    MAX_REASON_CHARACTERS,
    OWN,
    PAUSE,
    RESUME,
    ConfigKind,
    ConfigRules,
    GroupSettings,
    check,
    settings_of,
)

RULES = ConfigRules(dlq_prefix="dlq.", pause_enable=True)
BREAKER = "share.group.dlq.circuit.breaker"

# KIP-1316, "New Share Group Configuration Properties": name, type, default; then our field and how the default reads.
EIGHT = [
    (f"{BREAKER}.enable", ConfigKind.BOOLEAN, "false", "breaker_enable", False),
    (f"{BREAKER}.threshold.percent", ConfigKind.INT, "20", "threshold_percent", 20),
    (f"{BREAKER}.window.ms", ConfigKind.LONG, "60000", "window_ms", 60_000),
    (f"{BREAKER}.min.messages", ConfigKind.INT, "100", "min_messages", 100),
    (f"{BREAKER}.auto.resume.enable", ConfigKind.BOOLEAN, "false", "auto_resume_enable", False),
    (f"{BREAKER}.auto.resume.ms", ConfigKind.LONG, "300000", "auto_resume_ms", 300_000),
    ("share.group.dlq.write.timeout.ms", ConfigKind.LONG, "30000", "write_timeout_ms", 30_000),
    ("share.group.dlq.strict.isolation", ConfigKind.BOOLEAN, "false", "strict_isolation", False),
]
FIELDS = {name: field for name, _, _, field, _ in EIGHT} | {COPY_RECORD: "copy_record"}


@pytest.mark.parametrize(("name", "kind", "default", "field", "value"), EIGHT)
def test_the_eight_have_the_names_types_and_defaults_of_the_document(
    name: str, kind: ConfigKind, default: str, field: str, value: object
) -> None:
    assert (OWN[name].kind, OWN[name].default) == (kind, default)
    assert getattr(settings_of({}), field) == value
    assert getattr(GroupSettings(), field) == value
    assert check(name, default, RULES) is None


def test_with_the_two_of_kip_1191_these_are_all() -> None:
    assert set(OWN) == {name for name, *_ in EIGHT} | {DLQ_TOPIC, COPY_RECORD}
    assert (OWN[DLQ_TOPIC].kind, OWN[DLQ_TOPIC].default) == (ConfigKind.STRING, None)
    assert (OWN[COPY_RECORD].kind, OWN[COPY_RECORD].default) == (ConfigKind.BOOLEAN, "false")
    assert settings_of({}) == GroupSettings()


# The last column is what kafka-clients 4.3.1 answers for the same type and range; None: taken, and read as `means`.
NUMBERS = [
    (f"{BREAKER}.threshold.percent", "1", 1, None),
    (f"{BREAKER}.threshold.percent", "100", 100, None),
    (f"{BREAKER}.threshold.percent", " +20\t", 20, None),
    (f"{BREAKER}.threshold.percent", "020", 20, None),
    (f"{BREAKER}.threshold.percent", "0", "0", "Value must be at least 1"),
    (f"{BREAKER}.threshold.percent", " -1 ", "-1", "Value must be at least 1"),
    (f"{BREAKER}.threshold.percent", "101", "101", "Value must be no more than 100"),
    (f"{BREAKER}.threshold.percent", "2147483647", "2147483647", "Value must be no more than 100"),
    (f"{BREAKER}.threshold.percent", "2147483648", "2147483648", "Not a number of type INT"),
    (f"{BREAKER}.threshold.percent", " x ", " x ", "Not a number of type INT"),
    (f"{BREAKER}.threshold.percent", "20 %", "20 %", "Not a number of type INT"),
    (f"{BREAKER}.threshold.percent", "19.99", "19.99", "Not a number of type INT"),
    (f"{BREAKER}.threshold.percent", "2_0", "2_0", "Not a number of type INT"),
    (f"{BREAKER}.threshold.percent", "", "", "Not a number of type INT"),
    (f"{BREAKER}.threshold.percent", "\u00a05", "\u00a05", "Not a number of type INT"),
    (f"{BREAKER}.window.ms", "1000", 1000, None),
    (f"{BREAKER}.window.ms", "86400000", 86_400_000, None),
    (f"{BREAKER}.window.ms", "999", "999", "Value must be at least 1000"),
    (f"{BREAKER}.window.ms", "86400001", "86400001", "Value must be no more than 86400000"),
    (f"{BREAKER}.window.ms", "9223372036854775808", "9223372036854775808", "Not a number of type LONG"),
    (f"{BREAKER}.window.ms", "60s", "60s", "Not a number of type LONG"),
    (f"{BREAKER}.min.messages", "1", 1, None),
    (f"{BREAKER}.min.messages", "2147483647", 2**31 - 1, None),
    (f"{BREAKER}.min.messages", "0", "0", "Value must be at least 1"),
    (f"{BREAKER}.min.messages", "2147483648", "2147483648", "Not a number of type INT"),
    (f"{BREAKER}.auto.resume.ms", "1", 1, None),
    (f"{BREAKER}.auto.resume.ms", "31536000000", 31_536_000_000, None),
    (f"{BREAKER}.auto.resume.ms", "0", "0", "Value must be at least 1"),
    (f"{BREAKER}.auto.resume.ms", "31536000001", "31536000001", "Value must be no more than 31536000000"),
    ("share.group.dlq.write.timeout.ms", "1", 1, None),
    ("share.group.dlq.write.timeout.ms", "9223372036854775807", 2**63 - 1, None),
    ("share.group.dlq.write.timeout.ms", "0", "0", "Value must be at least 1"),
    (f"{BREAKER}.enable", "true", True, None),
    (f"{BREAKER}.enable", " TRUE ", True, None),
    (f"{BREAKER}.enable", "False", False, None),
    (f"{BREAKER}.enable", " yes ", " yes ", "Expected value to be either true or false"),
    (f"{BREAKER}.enable", "1", "1", "Expected value to be either true or false"),
    (f"{BREAKER}.auto.resume.enable", "", "", "Expected value to be either true or false"),
    ("share.group.dlq.strict.isolation", "on", "on", "Expected value to be either true or false"),
    (COPY_RECORD, "true", True, None),
    (COPY_RECORD, "tru", "tru", "Expected value to be either true or false"),
]


@pytest.mark.parametrize(("name", "value", "means", "text"), NUMBERS)
def test_a_value_is_taken_or_refused_in_the_words_of_a_broker(
    name: str, value: str, means: object, text: str | None
) -> None:
    read = getattr(settings_of({name: value}), FIELDS[name])
    if text is None:
        assert check(name, value, RULES) is None
        assert read == means
    else:
        assert check(name, value, RULES) == f"Invalid value {means} for configuration {name}: {text}"
        assert read == getattr(GroupSettings(), FIELDS[name]), "what is not legal reads as the default"


TOPICS = [
    ("dlq.orders", None),
    (" dlq.orders ", None),
    ("dlq.", None),
    ("d" * 250, "the length of"),
    ("", "Topic name is invalid: the empty string is not allowed"),
    (".", "Topic name is invalid: '.' is not allowed"),
    ("..", "Topic name is invalid: '..' is not allowed"),
    (
        "dlq.a b",
        "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    ("dlq.\u00e9", "contains one or more characters"),
    ("orders", "Dead-letter topic name must start with 'dlq.'"),
    ("dlqorders", "Dead-letter topic name must start with 'dlq.'"),
    ("__dlq.orders", "Dead-letter topic name must not start with '__'"),
]


@pytest.mark.parametrize(("value", "text"), TOPICS)
def test_a_dead_letter_topic_has_a_legal_name_with_the_prefix(value: str, text: str | None) -> None:
    refusal = check(DLQ_TOPIC, value, RULES)
    if text is None:
        assert refusal is None
        assert settings_of({DLQ_TOPIC: value}).dlq_topic == value.strip()
    else:
        assert refusal is not None
        assert refusal.startswith(f"Invalid value {value} for configuration {DLQ_TOPIC}: ")
        assert text in refusal


def test_never_two_underscores_whatever_the_prefix() -> None:
    rules = ConfigRules(dlq_prefix="", pause_enable=True)
    assert check(DLQ_TOPIC, "orders", rules) is None
    assert check(DLQ_TOPIC, "__consumer_offsets", rules) is not None
    assert settings_of({DLQ_TOPIC: "__consumer_offsets"}).dlq_topic is None


def test_a_topic_that_was_set_under_another_prefix_still_counts() -> None:
    assert settings_of({DLQ_TOPIC: "dead.orders"}).dlq_topic == "dead.orders"


def test_without_pausing_the_breaker_cannot_be_enabled_and_the_text_names_the_dependency() -> None:
    rules = ConfigRules(dlq_prefix="dlq.", pause_enable=False)
    refusal = check(BREAKER_ENABLE, "true", rules)
    assert refusal is not None
    assert "KIP-1249" in refusal
    assert "share_groups.pause_enable" in refusal
    assert check(BREAKER_ENABLE, "false", rules) is None
    assert check(f"{BREAKER}.threshold.percent", "30", rules) is None


def test_a_name_that_is_not_ours_is_unknown() -> None:
    assert check("share.group.dlq.cirquit", "1", RULES) == "Unknown group config name: share.group.dlq.cirquit"
    assert check(LIMIT, "5", RULES) == f"Unknown group config name: {LIMIT}", "the broker's own, and its to check"


@pytest.mark.parametrize("name", [PAUSE, RESUME])
def test_a_reason_is_any_text_that_is_not_too_long(name: str) -> None:
    assert check(name, "", RULES) is None
    assert check(name, "r" * MAX_REASON_CHARACTERS, RULES) is None
    refusal = check(name, "r" * (MAX_REASON_CHARACTERS + 1), RULES)
    assert refusal is not None
    assert refusal.endswith(f"Reason must be no longer than {MAX_REASON_CHARACTERS} characters")


@pytest.mark.parametrize(("value", "limit"), [("5", 5), (" 7 ", 7), ("0", None), ("-1", None), ("x", None), ("", None)])
def test_the_users_limit_is_a_number_or_none(value: str, limit: int | None) -> None:
    assert settings_of({LIMIT: value}).limit == limit


@given(name=st.sampled_from([*OWN, LIMIT, PAUSE, "x"]), value=st.text() | st.integers().map(str))
def test_any_value_is_answered_and_read(name: str, value: str) -> None:
    refusal = check(name, value, RULES)
    assert refusal is None or len(refusal) < 2_000
    settings = settings_of({name: value})
    if name in FIELDS and refusal is not None:
        assert settings == GroupSettings()


def test_a_long_value_is_cut_in_the_text() -> None:
    for name in (*OWN, PAUSE):
        refusal = check(name, "9" * 1_000_000, RULES)
        assert refusal is not None
        assert len(refusal) < 1_500
