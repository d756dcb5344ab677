"""The JVM of a session: the arguments that it starts with, and its end when the session does not start."""

import subprocess
from types import SimpleNamespace
from typing import NoReturn

import pytest
from pyspark import SparkConf

from headgate.base.locations import ObjectLocation
from headgate.pipeline import session
from headgate.pipeline.spark_storage import LOG_STORE


@pytest.mark.parametrize("ending", [SystemExit(0), KeyboardInterrupt(), RuntimeError("no memory")])
def test_a_session_that_is_interrupted_while_it_starts_leaves_no_jvm(
    monkeypatch: pytest.MonkeyPatch, ending: BaseException
) -> None:
    class Context:
        _active_spark_context = None

        def __init__(self, **_: object) -> NoReturn:
            raise ending

    # `sleep` stands for a JVM that does not end when its driver does.
    jvm = subprocess.Popen(["sleep", "600"], start_new_session=True)
    monkeypatch.setattr(session, "launch_gateway", lambda *_: SimpleNamespace(proc=jvm))
    monkeypatch.setattr(session, "SparkContext", Context)
    try:
        with pytest.raises(type(ending)):
            session.start_session({})
        assert jvm.poll() is not None
    finally:
        jvm.kill()
        jvm.wait()


def test_credentials_of_the_object_store_are_not_in_the_arguments_of_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """`launch_gateway` makes an argument of each setting that it is given; the context gets all of them by a socket."""
    launched: list[SparkConf] = []
    contexts: list[SparkConf] = []

    class Context:
        _active_spark_context = None

        def __init__(self, *, conf: SparkConf, gateway: object) -> NoReturn:  # noqa: ARG002
            contexts.append(conf)
            raise KeyboardInterrupt  # all that is asked here happened before

    def launch(conf: SparkConf, _options: object) -> SimpleNamespace:
        launched.append(conf)
        return SimpleNamespace(proc=None)

    monkeypatch.setattr(session, "launch_gateway", launch)
    monkeypatch.setattr(session, "SparkContext", Context)
    options = {
        "AWS_ENDPOINT_URL": "https://s3.internal:9000",
        "AWS_ACCESS_KEY_ID": "the-key-id",
        "AWS_SECRET_ACCESS_KEY": "the-key",
        "AWS_SESSION_TOKEN": "the-session",
    }
    store = ObjectLocation("lake", ("tables",), tuple(options.items()))
    configured = {"spark.jars": "a.jar", "spark.driver.memory": "700m", "spark.ssl.keyPassword": "the-password"}
    with pytest.raises(KeyboardInterrupt):
        session.start_session(configured, (store,))

    arguments, settings = dict(launched[0].getAll()), dict(contexts[0].getAll())
    s3a = "spark.hadoop.fs.s3a."
    secrets = {f"{s3a}access.key", f"{s3a}secret.key", f"{s3a}session.token", "spark.ssl.keyPassword"}
    # The class of the provider is withheld for its name's sake.
    assert settings.keys() - arguments.keys() == secrets | {f"{s3a}aws.credentials.provider"}
    assert {settings[name] for name in secrets} == {"the-key-id", "the-key", "the-session", "the-password"}
    assert arguments.items() <= settings.items()
    assert arguments[f"{s3a}endpoint"] == "https://s3.internal:9000"
    assert (arguments["spark.delta.logStore.s3a.impl"], arguments["spark.driver.memory"]) == (LOG_STORE, "700m")
