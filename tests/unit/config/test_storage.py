"""`[tables] storage`: the options of an object store, from the configuration and the environment."""

from pathlib import Path

import pytest

from headgate.base.locations import ObjectLocation
from headgate.config import ConfigError, check, load

KEYS = {"AWS_ACCESS_KEY_ID": "of-the-file", "AWS_SECRET_ACCESS_KEY": "hidden"}


def options(overrides: dict[str, object], env: dict[str, str]) -> dict[str, str]:
    config = load(None, env, {"tables.path": "s3://lake/tables", "upstream.service_mechanism": "none", **overrides})
    assert isinstance(config.tables.path, ObjectLocation)
    assert "hidden" not in repr(config)
    return dict(config.tables.path.options)


def test_the_environment_counts_where_the_configuration_has_no_such_option() -> None:
    env = {"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "https://store", "AWS_PROFILE": "unused"}
    found = options({"tables.storage": {"AWS_REGION": "us-east-2"}}, env)
    assert found == {"AWS_REGION": "us-east-2", "AWS_ENDPOINT_URL": "https://store"}
    assert options({}, {"AWS_DEFAULT_REGION": "eu-west-1"}) == {"AWS_REGION": "eu-west-1"}


def test_credentials_are_taken_from_one_of_the_two_as_a_whole() -> None:
    env = {"AWS_ACCESS_KEY_ID": "of-env", "AWS_SECRET_ACCESS_KEY": "hidden-too", "AWS_SESSION_TOKEN": "hidden-three"}
    assert options({"tables.storage": KEYS}, env) == KEYS
    assert options({}, env) == env


def test_a_checkpoint_on_a_store_has_the_same_options() -> None:
    config = load(None, KEYS, {"pipeline.checkpoint": "s3://lake/c", "upstream.service_mechanism": "none"})
    assert isinstance(config.pipeline.checkpoint, ObjectLocation)
    assert dict(config.pipeline.checkpoint.options) == KEYS
    assert isinstance(config.tables.path, Path)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"tables.storage": KEYS}, "is used only with an object store"),
        ({"tables.path": "s3://lake/a", "tables.storage": {"AWS_ENDPOINT_URL": "http://hidden"}}, "AWS_ALLOW_HTTP"),
        ({"tables.path": "s3://lake/a", "tables.storage": {"AWS_ACCESS_KEY_ID": "hidden"}}, "come together"),
        ({"tables.path": "s3://lake/a", "tables.storage": {"AWS_SECRET_KEY": "hidden"}}, "AWS_SECRET_KEY: unknown"),
        ({"tables.path": "s3://lake/a", "tables.storage": {"AWS_REGION": "hidden\n"}}, "printable ASCII"),
        ({"tables.path": "s3://lake/a", "tables.storage": {"AWS_ALLOW_HTTP": "hidden"}}, "must be true or false"),
        ({"tables.path": "gs://hidden/a"}, "no other scheme is known"),
    ],
)
def test_problems_name_the_option_and_never_its_value(overrides: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        load(None, {}, {"upstream.service_mechanism": "none", **overrides})
    assert "hidden" not in str(refused.value)


def test_it_is_a_table_in_the_file_and_json_in_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text(
        '[upstream]\nservice_mechanism = "none"\n[tables]\npath = "s3://lake/a"\n'
        '[tables.storage]\nAWS_ENDPOINT_URL = "http://127.0.0.1:1"\nAWS_ALLOW_HTTP = true\n'
    )
    assert check(file, {}) == ()
    variable = {"HEADGATE_TABLES_STORAGE": '{"AWS_REGION": "eu-central-1"}'}
    config = load(file, variable)
    assert isinstance(config.tables.path, ObjectLocation)
    assert dict(config.tables.path.options) == {"AWS_REGION": "eu-central-1"}
