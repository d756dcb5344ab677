"""haproxy as a floor: it passes bytes and knows nothing of Kafka, so clients would leave it after the first answer."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from bench.peers.peer import HOST, Proxy
from bench.processes import BenchError


class Haproxy(Proxy):
    """As it comes, in TCP mode, on both cores."""

    name = "haproxy"
    title = "haproxy"
    rewrites = False
    tuning: ClassVar[tuple[str, str]] = ("", "")  # lines of its sections `global` and `defaults`

    def prepare(self) -> str:
        found = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if found is None:
            raise BenchError("haproxy is not installed: `make system` installs it")
        said = subprocess.run([found, "-v"], capture_output=True, text=True, check=True, timeout=10).stdout
        self._program = found
        return said.split(" - ")[0].strip()

    def command(self) -> Sequence[str | Path]:
        config = self.folder / "haproxy.cfg"
        config.write_text(self._config())
        return [self._program, "-db", "-f", config]

    def _config(self) -> str:
        tls = self.upstream.tls
        offered = "" if tls is None else f" ssl crt {tls.both}"
        asked = "" if tls is None else f" ssl verify required ca-file {tls.authority} verifyhost localhost"
        ways = [(self.port, self.upstream.nodes[0])]
        ways += [(self.port + 1 + node, address) for node, address in enumerate(self.upstream.nodes)]
        listeners = "".join(
            f"listen p{port}\n  bind {HOST}:{port}{offered}\n  server s{port} {address}{asked}\n"
            for port, address in ways
        )
        return (
            f"global\n  maxconn 6000\n  nbthread 2\n{self.tuning[0]}"
            f"defaults\n  mode tcp\n{self.tuning[1]}"
            f"  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n{listeners}"
        )


class TunedHaproxy(Haproxy):
    """With buffers for large frames, and bytes moved inside the kernel where TLS does not need to see them."""

    name = "haproxy-tuned"
    title = "haproxy, tuned"
    tuning = ("  tune.bufsize 262144\n", "  option splice-auto\n")
