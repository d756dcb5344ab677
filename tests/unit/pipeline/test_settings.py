"""How the pipeline's session and its Kafka source are configured."""

from pathlib import Path

import pytest

from headgate.base.errors import PlatformError
from headgate.config import load
from headgate.pipeline.builds import BUILDS
from headgate.pipeline.queries import APPEND, FACTS, QUERIES, read_options
from headgate.pipeline.session import spark_settings


@pytest.fixture
def jars(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "one.jar").touch()
    return {"HEADGATE_JARS": str(tmp_path)}


def test_a_session_is_small_and_local_unless_configured(jars: dict[str, str], tmp_path: Path) -> None:
    settings = spark_settings({}, environment=jars)
    assert settings["spark.master"] == "local[2]"
    assert settings["spark.jars"] == str(tmp_path / "spark" / "one.jar")


def test_settings_of_the_operator_win(jars: dict[str, str]) -> None:
    own = {"spark.sql.shuffle.partitions": "7", "spark.driver.extraJavaOptions": "-Dx=1"}
    settings = spark_settings(own, environment=jars)
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.driver.extraJavaOptions"].endswith(" -Dx=1")


def test_a_cluster_has_its_own_sizes(jars: dict[str, str]) -> None:
    settings = spark_settings({"spark.master": "spark://host:7077"}, environment=jars)
    assert "spark.driver.memory" not in settings
    assert "spark.driver.bindAddress" not in settings
    assert settings["spark.ui.enabled"] == "false"


def test_spark_submit_knows_its_machines_and_jars() -> None:
    settings = spark_settings({"spark.x": "1"}, submitted=True)
    assert not settings.keys() & {"spark.master", "spark.jars", "spark.driver.memory", "spark.driver.extraJavaOptions"}
    assert settings["spark.x"] == "1"


def test_missing_jars_are_an_error_that_fits_a_checkout_and_an_installed_wheel(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="set HEADGATE_JARS to a folder with") as installed:
        spark_settings({}, environment={}, checkout=tmp_path)
    assert "make" not in str(installed.value).replace(str(tmp_path), "")
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "pom.xml").touch()
    with pytest.raises(PlatformError, match=r"run `make setup` in .*, or set HEADGATE_JARS"):
        spark_settings({}, environment={}, checkout=tmp_path)


def test_a_query_reads_its_topics_of_the_prefix_and_so_much_at_a_time() -> None:
    config = load(None, {}, {"facts.prefix": "a.b-", "upstream.service_mechanism": "none"})
    large = read_options(config, APPEND)
    assert (large["subscribePattern"], large["maxOffsetsPerTrigger"]) == (
        r"a\.b\-(activity|dispositions|lags)",
        "1000000",
    )
    options = read_options(config, FACTS)
    assert options["subscribePattern"] == r"a\.b\-(events|state|tasks|topologies)"
    assert options["maxOffsetsPerTrigger"] == "5000"
    assert options["kafka.security.protocol"] == "PLAINTEXT"


def test_only_the_append_query_waits_for_records_and_only_while_it_runs_on() -> None:
    """With --once the last records would be fewer than the minimum and stay unread; topologies and trips never wait."""
    config = load(None, {}, {"upstream.service_mechanism": "none"})
    waiting = {"minOffsetsPerTrigger", "maxTriggerDelay"}
    running = read_options(config, APPEND, once=False)
    assert running["minOffsetsPerTrigger"] == "50000"
    assert running["maxTriggerDelay"] == "20s"
    assert not waiting & read_options(config, APPEND).keys()
    assert not waiting & read_options(config, FACTS, once=False).keys()


def test_the_service_account_logs_in_and_odd_passwords_survive(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text('a"b\\c', encoding="utf-8")
    secret.chmod(0o600)
    options = read_options(
        load(
            None,
            {},
            {
                "upstream.service_user": "headgate",
                "upstream.service_password_file": str(secret),
                "upstream.service_mechanism": "PLAIN",
            },
        ),
        FACTS,
    )
    assert options["kafka.security.protocol"] == "SASL_PLAINTEXT"
    assert options["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="headgate" password="a\\"b\\\\c";'
    )


def test_every_table_belongs_to_a_query_and_an_appended_one_to_one() -> None:
    """`rejected_facts` alone has rows of both."""
    of_both = set(FACTS.builds()) & set(APPEND.builds())
    assert of_both == {"rejected_facts"}
    assert {name for query in QUERIES for name in query.builds()} == set(BUILDS)
    assert {name for name, build in APPEND.builds().items() if build.table.appended} == set(APPEND.builds()) - of_both
    assert not any(build.table.appended for build in FACTS.builds().values())
