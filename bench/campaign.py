"""The whole campaign: its stages one after the other, and the record of what they found."""

import io
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bench import certificates, codec, machine, metadata, stage
from bench.loader import Loader
from bench.peers.haproxy import Haproxy, TunedHaproxy
from bench.peers.headgate import Headgate, HeadgateTwo, watchers
from bench.peers.kafka_proxy import KafkaProxy
from bench.peers.kroxylicious import Kroxylicious
from bench.peers.peer import Direct
from bench.record import PARTIAL, Campaign
from bench.scenarios import BY_NAME, SCENARIOS
from bench.stage import Pace, Say, StageSpec

_PEERS = (Direct, Haproxy, TunedHaproxy, Headgate, Kroxylicious, KafkaProxy)
_DATA_BYTES = 4 << 30

STAGES = (
    StageSpec(
        name="plaintext",
        title="Plaintext, 1 broker",
        brokers=1,
        uses_tls=False,
        peers=_PEERS,
        scenarios=SCENARIOS,
        subject=Headgate.name,
    ),
    StageSpec(
        name="tls",
        title="TLS on both sides, 1 broker",
        brokers=1,
        uses_tls=True,
        peers=_PEERS,
        scenarios=tuple(scenario for scenario in SCENARIOS if not scenario.uses_java_tool),
        subject=Headgate.name,
    ),
    StageSpec(
        name="workers",
        title="Plaintext, 3 brokers: one worker and two (connections rounded up to a multiple of 3)",
        brokers=3,
        uses_tls=False,
        peers=(Direct, Haproxy, TunedHaproxy, Headgate, HeadgateTwo),
        scenarios=tuple(BY_NAME[name] for name in ("produce-64k", "fetch-1m", "clients-200")),
        subject=HeadgateTwo.name,
    ),
)


def run(*, stages: Sequence[str], only: Sequence[str], pace: Pace, command: str, say: Say) -> Campaign:
    """Measure the named stages and scenarios, all of them when none is named; each stage is kept when it is done."""
    start = time.monotonic()
    found = Campaign(
        began=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=0.0,
        command=command,
        rounds=pace.rounds,
        counted_seconds=pace.counted_s,
        facts=machine.facts() | {"broker's data on": "memory (/dev/shm)" if data_root() else "disk"},
        watchers=watchers(),
        stages=(),
        micro={},
    )
    specs = [_narrowed(spec, only) for spec in STAGES if not stages or spec.name in stages]
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as name,
        tempfile.TemporaryDirectory(prefix="headgate-bench-", dir=data_root()) as data,
        Loader(Path(name)) as loader,
    ):
        folder = Path(name)
        tls = certificates.make(folder / "certificates")
        for spec in specs:
            if spec.scenarios:
                measured = stage.run(
                    spec, pace, loader=loader, folder=folder / spec.name, data=Path(data), tls=tls, say=say
                )
                found = replace(found, stages=(*found.stages, measured), seconds=time.monotonic() - start)
                found.save(PARTIAL)
    say("Single functions")
    micro, why = _micro(say)
    return replace(found, micro=micro, micro_failed=why, seconds=time.monotonic() - start)


def _narrowed(spec: StageSpec, only: Sequence[str]) -> StageSpec:
    if not only:
        return spec
    return replace(spec, scenarios=tuple(scenario for scenario in spec.scenarios if scenario.name in only))


def data_root() -> str | None:
    """Where the brokers write: memory if there is plenty, since a disk's own moods would be measured otherwise."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free >= _DATA_BYTES else None


def _micro(say: Say) -> tuple[dict[str, float], str]:
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            figures = metadata.main() | codec.main()
    except Exception as error:  # noqa: BLE001 - half an hour of other figures must not be lost for it
        return {}, repr(error)
    say(said.getvalue().rstrip())
    return figures, ""
