"""grepplabs' kafka-proxy, built through Go's module proxy where that has it, and said to be absent where not."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.peers.peer import Proxy
from bench.processes import BenchError

MODULE = "github.com/grepplabs/kafka-proxy"
_ADDRESS = re.compile(r"https?://\S+")  # where a package comes from is nobody's business
_BUILD_S = 300.0


class KafkaProxy(Proxy):
    """One static mapping a node; the first node is the bootstrap address."""

    name = "kafka-proxy"
    title = "kafka-proxy"

    def prepare(self) -> str:
        if shutil.which("go") is None:
            raise BenchError("Go is not installed")
        # Its own folder for modules too: nothing of it stays. GOFLAGS lets that folder be deleted again.
        own = {"GOBIN": str(self.folder), "GOPATH": str(self.folder / "go"), "GOFLAGS": "-modcacherw"}
        try:
            built = subprocess.run(
                ["go", "install", f"{MODULE}@latest"],
                capture_output=True, text=True, timeout=_BUILD_S, check=False, env={**os.environ, **own},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BenchError(f"`go install {MODULE}@latest` took over {_BUILD_S:.0f} s") from None
        if built.returncode != 0:
            said = _ADDRESS.sub("(address)", " ".join(built.stderr.split()))
            raise BenchError(f"`go install {MODULE}@latest` failed: {said[:300]}")
        return f"{MODULE} latest"

    def command(self) -> Sequence[str | Path]:
        command: list[str | Path] = [self.folder / "kafka-proxy", "server", "--http-disable"]
        for upstream, ours in zip(self.upstream.nodes, self.nodes, strict=True):
            command += ["--bootstrap-server-mapping", f"{upstream},{ours}"]
        if (tls := self.upstream.tls) is not None:
            command += ["--tls-enable", "--tls-ca-chain-cert-file", tls.authority, "--proxy-listener-tls-enable"]
            command += ["--proxy-listener-cert-file", tls.certificate, "--proxy-listener-key-file", tls.key]
        self.bootstrap = self.nodes[0]
        return command
