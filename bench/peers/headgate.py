"""Headgate itself, as an operator runs it: with its defaults, so metrics and the NodeEndpoints check are on.

The targets also ask for watching. Whether there is anything to watch with is looked up, not taken for granted: a
gateway without a watcher does less work than the targets mean, and the page has to say so.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import headgate
import headgate.cli.worker  # with everything that a worker can load
from bench.peers.peer import HOST, Proxy
from headgate.proxy.interceptor import Interceptor

_WATCHED = {0, 1}  # Produce, Fetch


def watchers() -> tuple[str, ...]:
    """The interceptors of this version that look at Produce and Fetch while they pass."""
    found: list[str] = []
    waiting: list[type[Interceptor[Any]]] = [Interceptor]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if _WATCHED & kind.stream_keys:
            found.append(kind.__name__)
    return tuple(sorted(found))


class Headgate(Proxy):
    name = "headgate"
    title = "Headgate"
    workers: ClassVar[int] = 1
    gateway: ClassVar[Mapping[str, object]] = {}  # more of its section

    def prepare(self) -> str:
        return f"Headgate {headgate.__version__}, {self.workers} worker{'s' * (self.workers > 1)}"

    def command(self) -> Sequence[str | Path]:
        config = self.folder / "headgate.toml"
        config.write_text(self._config())
        return [sys.executable, "-m", "headgate.cli.main", "serve", "--config", config]

    def _config(self) -> str:
        gateway: dict[str, object] = {
            "listen": self.bootstrap,
            "nodes": f"0-{len(self.nodes) - 1}",
            "workers": self.workers,
            **self.gateway,
        }
        upstream: dict[str, object] = {"bootstrap": list(self.upstream.nodes)}
        if (tls := self.upstream.tls) is not None:
            gateway |= {"tls_cert": str(tls.certificate), "tls_key": str(tls.key)}
            upstream |= {"tls": True, "tls_ca": str(tls.authority), "service_mechanism": "none"}
        metrics: dict[str, object] = {"listen": f"{HOST}:{self.spare_port}"}
        tables: dict[str, object] = {"path": str(self.folder / "tables")}
        sections = {"gateway": gateway, "upstream": upstream, "metrics": metrics, "tables": tables}
        # The values here are text, numbers, switches and lists: JSON writes them as TOML does.
        return "".join(
            f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in section.items())
            for name, section in sections.items()
        )


class HeadgateTwo(Headgate):
    name = "headgate-2"
    title = "Headgate, 2 workers"
    workers = 2
