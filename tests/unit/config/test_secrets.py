"""A secret is read when it is needed, and shown nowhere."""

import os
from pathlib import Path

import pytest

from headgate.base.errors import UsageError
from headgate.cli import logs
from headgate.cli.main import main
from headgate.config import ConfigError, exposed_files, load
from headgate.config.files import MAX_SECRET_BYTES, read_secret

PASSWORD = "hunter2"


def test_the_secret_is_the_files_one_line(tmp_path: Path) -> None:
    file = tmp_path / "password"
    for content in (f"{PASSWORD}", f"{PASSWORD}\n", f"{PASSWORD}\r\n", f"{PASSWORD}\n \n"):
        file.write_bytes(content.encode())
        secret = read_secret(file)
        assert secret.get_secret_value() == PASSWORD
        assert PASSWORD not in repr(secret)
        assert PASSWORD not in str(secret)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty"),
        (b"\n" + PASSWORD.encode(), "more than one line"),
        (b"a\nb\n", "more than one line"),
        (b"\xff\xfe", "not UTF-8"),
        (b"x" * (MAX_SECRET_BYTES + 1), "more than 4096 bytes"),
    ],
)
def test_a_file_without_one_secret_is_refused_without_showing_it(content: bytes, text: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=text) as caught:
        read_secret(file)
    assert PASSWORD not in str(caught.value)


def test_a_missing_or_forbidden_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_secret(tmp_path / "none")
    with pytest.raises(UsageError, match="folder"):
        read_secret(tmp_path)
    if os.geteuid() != 0:
        file = tmp_path / "password"
        file.write_text(PASSWORD)
        file.chmod(0)
        with pytest.raises(UsageError, match="read permission"):
            read_secret(file)


def test_nothing_of_a_secret_is_in_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    config = load(
        None,
        {
            "HEADGATE_UPSTREAM_SERVICE_USER": "headgate",
            "HEADGATE_UPSTREAM_SERVICE_PASSWORD_FILE": str(file),
            "HEADGATE_TOPOLOGIES_STORE": f"sqlite:{PASSWORD}",
            "HEADGATE_PIPELINE_SPARK": f'{{"spark.hadoop.fs.s3a.secret.key": "{PASSWORD}"}}',
        },
    )
    assert config.topologies.store.target.count(PASSWORD) == 1
    assert PASSWORD not in repr(config)
    assert PASSWORD not in str(config)


@pytest.mark.parametrize(
    "path",
    [
        *("upstream.service_password_file", "upstream.service_password", "upstream.service_mechanism", "upstream.tls"),
        *(
            "upstream.bootstrap",
            "topologies.store",
            "topologies.owner",
            "web.tokens_file",
            "web.listen",
            "gateway.nodes",
        ),
        *("gateway.workers", "gateway.listen", "activity.enable", "facts.replication", "pipeline.spark", "activity"),
        *("connect", "connect.a", "connect.a.status_topic", "web.allowed_hosts", "gateway.advertised_host"),
    ],
)
def test_a_secret_in_the_wrong_place_is_not_shown(path: str) -> None:
    for value in (f"{PASSWORD} {PASSWORD}", [f"x://u:{PASSWORD}@h"], {"a": PASSWORD}):
        with pytest.raises(ConfigError) as caught:
            load(None, {}, {path: value})
        assert PASSWORD not in str(caught.value)


SECRET_FILES = """
[gateway]
tls_cert = "HERE/cert"
tls_key = "HERE/secret"
[upstream]
service_user = "u"
service_password_file = "HERE/secret"
[web]
tls_cert = "HERE/cert"
tls_key = "HERE/secret"
tokens_file = "HERE/secret"
[pipeline]
openlineage = "HERE/secret"
[tables]
path = "s3://lake/tables"
storage = { AWS_ACCESS_KEY_ID = "k", AWS_SECRET_ACCESS_KEY = "hunter2" }
"""
SECRET_KEYS = [
    "gateway.tls_key",
    "upstream.service_password_file",
    "web.tls_key",
    "web.tokens_file",
    "pipeline.openlineage",
    "tables.storage",
]


@pytest.mark.parametrize(
    ("mode", "paths"),
    [(0o600, []), (0o400, []), (0o640, []), (0o644, SECRET_KEYS), (0o660, SECRET_KEYS), (0o602, SECRET_KEYS)],
)
def test_a_secret_file_that_others_can_read_or_change_is_a_warning(
    mode: int, paths: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text(SECRET_FILES.replace("HERE", str(tmp_path)))
    (tmp_path / "cert").write_text("public")
    (tmp_path / "cert").chmod(0o644)
    (tmp_path / "secret").write_text("hunter2")
    for secret in (file, tmp_path / "secret"):
        secret.chmod(mode)
    warnings = list(exposed_files.warnings(load(file, {}), file))
    assert [warning.paths[0] for warning in warnings] == paths
    assert all(f"mode {mode:03o}" in warning.text and "hunter2" not in warning.text for warning in warnings)
    assert main(["config", "check", str(file)]) == 0
    printed = capsys.readouterr().err
    assert [key for key in SECRET_KEYS if f"{key}: warning: other users can read" in printed] == paths


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ('[tables]\npath = "s3://lake/tables"\n', {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": PASSWORD}),
        ('[tables]\npath = "s3://lake/tables"\nstorage = { AWS_REGION = "eu" }\n', {}),
        ("", {}),
    ],
)
def test_a_configuration_without_credentials_may_be_read_by_all(text: str, env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text(text)
    file.chmod(0o644)
    assert list(exposed_files.warnings(load(file, env), file)) == []


@pytest.mark.parametrize(
    "command",
    [
        ["serve"],
        ["dev", "--data-dir", "HERE/data"],
        ["web"],
        ["pipeline", "rebuild", "no_such_table"],
        ["dlq", "replay", "no-such-plan", "--bootstrap-server", "127.0.0.1:1"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_that_runs_for_long_warns_of_secret_files(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They fail here right after it: the store is no plugin, the certificate is none, table and plan do not exist."""
    file, secret = tmp_path / "headgate.toml", tmp_path / "secret"
    file.write_text(
        f"""
[topologies]
store = "plugin:no_such_module:Store"
[web]
tls_cert = "{secret}"
tls_key = "{secret}"
[tables]
path = "{tmp_path / "tables"}"
"""
    )
    secret.write_text("hunter2")
    secret.chmod(0o644)
    arguments = [one.replace("HERE", str(tmp_path)) for one in command]
    assert main([*arguments, "--config", str(file)]) != 0
    logs.close()
    printed = capfd.readouterr().err
    assert 'event="secret file open to other users" key=web.tls_key' in printed
