"""The JVM of a session that did not start."""

import subprocess
from types import SimpleNamespace
from typing import NoReturn

import pytest

from headgate.pipeline import session


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
