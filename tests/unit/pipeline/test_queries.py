"""Stopping a query."""

from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from headgate.base.errors import ClusterError
from headgate.pipeline.queries import run_query


def test_a_batch_that_spark_cannot_interrupt_is_one_sentence(tmp_path: Path) -> None:
    session: Any = MagicMock()  # only its query counts, and Spark needs half a minute for the real one
    writer = session.readStream.format().options().load().writeStream.queryName().foreachBatch().option()
    query = writer.trigger().start()
    query.lastProgress = None
    query.stop.side_effect = Py4JError("java.util.concurrent.TimeoutException: failed to stop within 10000 ms")
    batches = MagicMock(running=None)
    stop = Event()
    stop.set()
    with pytest.raises(ClusterError, match="the running batch did not end in time"):
        run_query(session, batches, tmp_path / "c", {}, trigger_ms=1, stop=stop, observer=MagicMock())
