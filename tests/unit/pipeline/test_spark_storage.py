"""What Spark is given for tables on an object store."""

from pathlib import Path

import pytest

from headgate.base.errors import UsageError
from headgate.base.locations import ObjectLocation
from headgate.pipeline.session import spark_settings
from headgate.pipeline.spark_storage import spark_address, storage_settings

OPTIONS = (
    ("AWS_ACCESS_KEY_ID", "key"),
    ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000"),
    ("AWS_REGION", "eu-central-1"),
    ("AWS_SECRET_ACCESS_KEY", "hidden"),
)
ROOT = ObjectLocation("lake", ("tables",), OPTIONS)


def test_spark_knows_the_scheme_by_another_name(tmp_path: Path) -> None:
    assert spark_address(ROOT / "changes") == "s3a://lake/tables/changes"
    assert spark_address("s3://lake/tables/a.parquet") == "s3a://lake/tables/a.parquet"
    assert spark_address(tmp_path) == str(tmp_path)


def test_folders_need_no_settings(tmp_path: Path) -> None:
    assert storage_settings((tmp_path, tmp_path), {}) == {}


def test_a_store_gets_the_options_and_the_log_store_that_creates_only_what_is_absent(tmp_path: Path) -> None:
    settings = storage_settings((tmp_path, ROOT), {"spark.hadoop.fs.s3a.endpoint.region": "own"})
    assert settings["spark.delta.logStore.s3a.impl"] == "headgate.s3.ConditionalLogStore"
    assert settings["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert settings["spark.hadoop.fs.s3a.secret.key"] == "hidden"
    assert "spark.hadoop.fs.s3a.endpoint.region" not in settings, "the operator's own setting wins"


def test_without_keys_spark_finds_the_role_of_the_machine_itself() -> None:
    settings = storage_settings((ObjectLocation("lake", ("a",)),), {})
    assert not [name for name in settings if "key" in name or "credentials" in name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.hadoop.fs.s3a.performance.flags", "delete, Create"),
        ("spark.hadoop.fs.s3a.bucket.lake.performance.flags", "*"),
        ("spark.hadoop.fs.s3a.create.performance", "true"),
    ],
)
def test_settings_that_make_a_creation_an_overwrite_are_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match="commits overwrite each other"):
        storage_settings((ROOT,), {name: value})


def test_the_jars_of_a_store_are_added_only_where_there_is_one(tmp_path: Path) -> None:
    for part in ("spark", "s3"):
        (tmp_path / part).mkdir()
        (tmp_path / part / f"{part}.jar").touch()
    (tmp_path / "headgate-s3.jar").touch()
    jars = {"HEADGATE_JARS": str(tmp_path)}
    local = spark_settings({}, environment=jars, locations=(tmp_path,))["spark.jars"]
    stored = spark_settings({}, environment=jars, locations=(ROOT,))["spark.jars"]
    assert [Path(jar).name for jar in local.split(",")] == ["spark.jar"]
    assert [Path(jar).name for jar in stored.split(",")] == ["spark.jar", "s3.jar", "headgate-s3.jar"]
