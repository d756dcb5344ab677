"""The gateway under test: `headgate serve` as an operator runs it, in a process of its own.

One rule: a test sees the gateway only from outside, by its sockets, its ready line and its exit code.
"""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from tests.support.ports import port_block

_READY_S, _STOP_S, _PAGE_S = 90.0, 60.0, 30.0  # of a machine that does much else; an idle one needs 2 s
HEADGATE = Path(sys.executable).parent / "headgate"


class GatewayError(AssertionError):
    """The gateway did not do what its contract says of start and stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySetup:
    """What goes into the configuration file; node `i` listens on `port + 1 + i`."""

    folder: Path
    port: int
    upstream: str
    metrics_port: int
    advertised_host: str = "127.0.0.1"
    nodes: str = "0-0"
    more: Mapping[str, object] = field(default_factory=dict)  # by path: {"gateway.workers": 2}

    def write(self) -> Path:
        """The file's path; JSON strings, numbers and arrays are TOML too."""
        keys: dict[str, object] = {
            "gateway.listen": f"127.0.0.1:{self.port}",
            "gateway.advertised_host": self.advertised_host,
            "gateway.nodes": self.nodes,
            "upstream.bootstrap": self.upstream.split(","),
            "upstream.service_mechanism": "none",
            "metrics.listen": f"127.0.0.1:{self.metrics_port}",
            "tables.path": str(self.folder / "tables"),
            # Nothing but carrying bytes, unless a test is about it.
            "topologies.owner": "broker",
            "share_groups.enable": False,
            "activity.enable": False,
            "lags.enable": False,
            **self.more,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "headgate.toml"
        file.write_text("".join(f"{path} = {json.dumps(value)}\n" for path, value in keys.items()), encoding="utf-8")
        return file


class GatewayProcess:
    """Started by `start`, ended by `stop` (SIGTERM) or `kill`; may be started again on the same ports."""

    def __init__(self, setup: GatewaySetup) -> None:
        self.setup = setup
        self.log = setup.folder / "gateway.log"
        self._config = setup.write()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()

    @property
    def bootstrap(self) -> str:
        return f"{self.setup.advertised_host}:{self.setup.port}"

    def address(self, node: int) -> str:
        """Where clients of this node dial."""
        return f"{self.setup.advertised_host}:{self.setup.port + 1 + node}"

    def start(self, *, wait: bool = True) -> None:
        """Run it and return when it says that it is ready, or at once."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [HEADGATE, "serve", "--config", self._config], stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._process = process
        lines: SimpleQueue[str] = SimpleQueue()
        assert process.stdout
        # It must be able to write for as long as it lives, so its output is read to the end.
        threading.Thread(target=_forward, args=(process, lines), name="gateway-output", daemon=True).start()
        if not wait:
            return
        with contextlib.suppress(Empty):
            while line := lines.get(timeout=_READY_S):
                if line.startswith("ready gateway="):
                    return
        self.kill()
        raise GatewayError(f"the gateway is not ready; exit code {process.returncode}, log:\n{self._last_words()}")

    def send_signal(self, signum: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(signum)

    def replace_workers(self) -> None:
        """Ask for new workers as an operator does; it goes on by itself."""
        self.send_signal(signal.SIGHUP)

    def stop(self) -> int:
        """Ask it to end as an operator does, and say its exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Its exit code, when it has ended."""
        assert self._process
        try:
            return self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise GatewayError(f"the gateway did not end in {_STOP_S:.0f} s, log:\n{self._last_words()}") from None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()

    def workers(self) -> list[int]:
        """The process ids of its workers."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        # The kernel may name one twice when another process of the machine ends meanwhile.
        return [int(child) for child in dict.fromkeys(children.read_text(encoding="ascii").split())]

    def page(self, path: str) -> tuple[int, str]:
        """Status and text of a status page."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.setup.metrics_port}{path}", timeout=_PAGE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def problems(self) -> dict[str, str]:
        """What `/readyz` complains of; empty when it is ready."""
        try:
            status, text = self.page("/readyz")
        except urllib.error.URLError as error:
            return {"/readyz": str(error)}
        answer: dict[str, Any] = json.loads(text)
        assert answer["ready"] is (status == 200)
        problems: dict[str, str] = answer["problems"]
        return problems

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        families = text_string_to_metric_families(self.page("/metrics")[1])
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        return "\n".join(self.log_lines()[-30:])


@contextmanager
def running_gateway(folder: Path, upstream: str, *, wait: bool = True, **more: object) -> Iterator[GatewayProcess]:
    """A gateway on ports of its own until the block ends; `gateway__workers=2` is the key gateway.workers.

    A defect that it has written into its log fails the test, whatever the clients saw.
    """
    port = port_block()
    keys = {path.replace("__", "."): value for path, value in more.items()}
    gateway = GatewayProcess(
        GatewaySetup(
            folder=folder / str(port),
            port=port,
            upstream=upstream,
            metrics_port=port + 15,
            more={"gateway.drain_ms": 2000, **keys},
        )
    )
    try:
        gateway.start(wait=wait)
        yield gateway
        if gateway.is_running:
            assert gateway.stop() == 0
        defects = [line for line in gateway.log_lines() if "Traceback" in line or "defect" in line]
        assert not defects, "\n".join(gateway.log_lines())
    finally:
        gateway.kill()


def _forward(process: subprocess.Popen[str], lines: "SimpleQueue[str]") -> None:
    assert process.stdout
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put("")
