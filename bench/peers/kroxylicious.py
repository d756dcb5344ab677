"""Kroxylicious's runtime from Maven, started by a main of our own; neither it nor its jars are kept in the tree."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.loader import compile_java
from bench.peers.peer import Proxy
from bench.processes import BenchError
from headgate.embedded.java import find_java

VERSION = "0.12.0"
_FETCH_S = 300.0

_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headgate</groupId><artifactId>bench-peer</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>io.kroxylicious</groupId><artifactId>kroxylicious-runtime</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

_MAIN = """\
import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.*;
public class PeerMain {
  public static void main(String[] args) throws Exception {
    ConfigParser parser = new ConfigParser();
    var config = parser.parseConfiguration(Files.readString(Path.of(args[0])));
    try (KafkaProxy proxy = new KafkaProxy(parser, config, Features.defaultFeatures())) {
      proxy.startup();
      proxy.block();
    }
  }
}
"""


class Kroxylicious(Proxy):
    """Without filters of its own, and with JVM defaults."""

    name = "kroxylicious"
    title = "Kroxylicious"
    warm_ups = 4  # while its JVM still compiles, most of its CPU goes there

    def prepare(self) -> str:
        jars, pom, main = self.folder / "jars", self.folder / "pom.xml", self.folder / "PeerMain.java"
        pom.write_text(_POM)
        main.write_text(_MAIN)
        if shutil.which("mvn") is None:
            raise BenchError("Maven is not installed: `make system` installs it")
        fetch: list[str | Path] = [
            "mvn",
            "-B",
            "-ntp",
            "-q",
            "-Dstyle.color=never",
            "-f",
            pom,
            "dependency:copy-dependencies",
        ]
        try:
            fetched = subprocess.run(
                [*fetch, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"],
                capture_output=True, text=True, timeout=_FETCH_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BenchError(f"Maven did not fetch it within {_FETCH_S:.0f} s") from None
        if fetched.returncode != 0:
            said = [line for line in fetched.stdout.splitlines() if "ERROR" in line] or ["no reason given"]
            raise BenchError(f"it does not resolve from Maven: {said[0][:300]}")
        compile_java([main], self.folder / "classes", jars=f"{jars}/*")
        return f"Kroxylicious {VERSION}"

    def command(self) -> Sequence[str | Path]:
        config = self.folder / "config.yaml"
        config.write_text(self._config())
        path = f"{self.folder / 'classes'}:{self.folder / 'jars'}/*"
        return [find_java().command.absolute(), "-Xmx1g", "-cp", path, "PeerMain", config]

    def _config(self) -> str:
        tls = self.upstream.tls
        trust = (
            ""
            if tls is None
            else f"""
      tls:
        trust:
          storeFile: {tls.authority}
          storeType: PEM"""
        )
        key = (
            ""
            if tls is None
            else f"""
        tls:
          key:
            privateKeyFile: {tls.key}
            certificateFile: {tls.certificate}"""
        )
        return f"""\
virtualClusters:
  - name: bench
    targetCluster:
      bootstrapServers: {self.upstream.bootstrap}{trust}
    gateways:
      - name: default
        portIdentifiesNode:
          bootstrapAddress: {self.bootstrap}
          nodeStartPort: {self.port + 1}
          nodeIdRanges:
            - name: brokers
              start: 0
              end: {len(self.nodes) - 1}{key}
"""
