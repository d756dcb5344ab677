"""A FileStream source and sink in a real Connect worker."""

from pathlib import Path

from tests.support.connect_worker import ConnectWorker

_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_FILE_STREAM = "org.apache.kafka.connect.file.FileStream"


def file_source(file: Path, topic: str, **more: str) -> dict[str, str]:
    """The configuration of a connector that writes the lines of a file into a topic."""
    return _strings(f"{_FILE_STREAM}SourceConnector") | {"file": str(file), "topic": topic} | more


def file_sink(file: Path, **more: str) -> dict[str, str]:
    """The configuration of a connector that appends what it reads to a file."""
    return _strings(f"{_FILE_STREAM}SinkConnector") | {"file": str(file)} | more


def _strings(connector: str) -> dict[str, str]:
    return {"connector.class": connector, "tasks.max": "1", "key.converter": _STRINGS, "value.converter": _STRINGS}


def copy_lines(bootstrap: str, name: str, folder: Path, rest_port: int) -> None:
    """Start a worker, copy the lines of a file through a topic into another file, and end it."""
    lines = [f"line {number}" for number in range(20)]
    source, sink = folder / "source.txt", folder / "sink.txt"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sink.unlink(missing_ok=True)
    with ConnectWorker(bootstrap, name, folder, rest_port, {"status.storage.partitions": "1"}) as worker:
        worker.wait()
        worker.put(f"{name}-source", file_source(source, f"{name}.lines"))
        worker.put(f"{name}-sink", file_sink(sink, topics=f"{name}.lines"))
        worker.until("the lines", lambda: sink.exists() and sink.read_text("utf-8").splitlines() == lines)
        worker.until("the active topics", lambda: _active_topics(worker, name) == {f"{name}.lines"})
        for connector in ("source", "sink"):
            worker.ask("DELETE", f"/connectors/{name}-{connector}")
        worker.until("no connector", lambda: worker.ask("GET", "/connectors") == [])
        worker.stop()


def _active_topics(worker: ConnectWorker, name: str) -> set[str]:
    """What both connectors have used by now (KIP-558)."""
    used = [worker.ask("GET", f"/connectors/{name}-{one}/topics") for one in ("source", "sink")]
    topics = [set(answer[f"{name}-{one}"]["topics"]) for answer, one in zip(used, ("source", "sink"), strict=True)]
    return topics[0] & topics[1]
