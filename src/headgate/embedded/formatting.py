"""The first format of a cluster, by Kafka's own storage tool, and the JVM that it and the nodes run in.

One rule: a folder counts as formatted only when the tool has succeeded for every node.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from headgate.base.errors import ClusterError, HeadgateError, UsageError
from headgate.base.ids import ClusterId, NodeId
from headgate.embedded import properties
from headgate.embedded.java import class_path, find_java
from headgate.embedded.node import fault, setting_refused
from headgate.embedded.spawn import start_tethered
from headgate.embedded.spec import ClusterSpec
from headgate.embedded.waiting import Patience, Wait

Command = list[str | Path]

_LOG4J = Path(__file__).with_name("log4j2.xml")
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaJvm:
    """How a program of the broker's class path is run for a node of this cluster."""

    java: Path
    jars: str
    spec: ClusterSpec

    @classmethod
    def find(cls, spec: ClusterSpec) -> "KafkaJvm":
        """`PlatformError` when Java or the jars are missing."""
        return cls(java=find_java().command.absolute(), jars=class_path("broker"), spec=spec)

    def log(self, node: NodeId) -> Path:
        return self.spec.logs.absolute() / f"node-{node}.log"

    def command(self, node: NodeId, main_class: str, *arguments: str | Path) -> Command:
        # The first compiler alone and the serial collector start quickest on few cores.
        quick = [] if self.spec.full_jit else ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return [
            self.java,
            *quick,
            f"-Xmx{self.spec.heap_mb}m",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={_LOG4J}",
            f"-Dheadgate.log={self.log(node)}",
            "-cp",
            self.jars,
            main_class,
            *arguments,
        ]


def format_nodes(jvm: KafkaJvm, cluster_id: ClusterId, configs: dict[NodeId, Path], patience: Patience) -> None:
    """Run the storage tool for all nodes at once, with the SCRAM users of the spec."""
    users = [
        argument
        for name, password in jvm.spec.access.users.items()
        for mechanism in properties.SCRAM_MECHANISMS
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]
    tools: dict[Path, subprocess.Popen[bytes]] = {}
    try:
        for node, config in configs.items():
            output = jvm.log(node).with_name(f"format-{node}.out")
            output.unlink(missing_ok=True)
            command = jvm.command(
                node, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config.absolute(), *users
            )
            tools[output] = start_tethered(command, output=output)
        wait = Wait(patience.at_most(_LIMIT_S))
        while any(tool.poll() is None for tool in tools.values()):
            wait.pause("formatting the data directory", look_into=str(jvm.spec.logs))
    finally:
        for tool in tools.values():
            tool.kill()
            tool.wait()
    for output, tool in tools.items():
        if tool.returncode != 0:
            lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
            reason = fault(lines) or (lines[-1] if lines else f"exit code {tool.returncode}")
            text = f"the data directory cannot be formatted: {reason}; its log is {output}"
            raise refusal(jvm.spec, text, about_setting=setting_refused(lines))
        output.unlink()


def refusal(spec: ClusterSpec, text: str, *, about_setting: bool) -> HeadgateError:
    """Why Kafka will not start: a setting that it does not accept is the operator's to mend, all else is trouble."""
    if about_setting and spec.settings:
        return UsageError(f"Kafka refuses a setting: {text}; mend or leave out that --set")
    return ClusterError(text)
