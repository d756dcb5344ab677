"""The gateway under test: `headgate serve` as an operator runs it, in a process of its own.

One rule: a test sees the gateway only from outside, by its sockets, its ready line and its exit code.
"""

import contextlib
import json
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

_READY_S, _STOP_S = 30.0, 20.0
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

    def write(self) -> Path:
        """The file's path; JSON strings and arrays are TOML too."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "headgate.toml"
        file.write_text(
            "\n".join(
                (
                    "[gateway]",
                    f'listen = "127.0.0.1:{self.port}"',
                    f"advertised_host = {json.dumps(self.advertised_host)}",
                    f"nodes = {json.dumps(self.nodes)}",
                    "[upstream]",
                    f"bootstrap = {json.dumps(self.upstream.split(','))}",
                    'service_mechanism = "none"',
                    "[metrics]",
                    f'listen = "127.0.0.1:{self.metrics_port}"',
                    "",
                )
            ),
            encoding="utf-8",
        )
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
        self.kill()

    @property
    def bootstrap(self) -> str:
        return f"{self.setup.advertised_host}:{self.setup.port}"

    def start(self) -> None:
        """Run it and return when it says that it is ready."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [HEADGATE, "serve", "--config", self._config], stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._process = process
        lines: SimpleQueue[str] = SimpleQueue()
        assert process.stdout
        # It must be able to write for as long as it lives, so its output is read to the end.
        threading.Thread(target=_forward, args=(process, lines), name="gateway-output", daemon=True).start()
        with contextlib.suppress(Empty):
            while line := lines.get(timeout=_READY_S):
                if line.startswith("ready gateway="):
                    return
        self.kill()
        raise GatewayError(f"the gateway is not ready; exit code {process.returncode}, log:\n{self._last_words()}")

    def stop(self) -> int:
        """Ask it to end as an operator does, and say its exit code."""
        assert self._process
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise GatewayError(f"the gateway did not end in {_STOP_S:.0f} s, log:\n{self._last_words()}") from None

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])


def _forward(process: subprocess.Popen[str], lines: "SimpleQueue[str]") -> None:
    assert process.stdout
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put("")
