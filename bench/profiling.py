"""`python -m bench.profiling`: where a worker's CPU goes, plaintext and TLS, into `bench/PROFILE.md`.

Runs Headgate alone under each load while py-spy samples its busiest process from outside, and prints for each the
split into user and system time and the functions in which samples ended. py-spy is no dependency of the project:
put it on PATH (`pip install py-spy` into any environment). Nothing here is a measurement: sampling costs time. Sections
of the page that are written by hand stay; a run that is narrowed to scenarios or a stage is only printed.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench import certificates, machine
from bench.campaign import data_root
from bench.cluster import BenchCluster
from bench.loader import Loader
from bench.peers.headgate import Headgate
from bench.processes import BenchError, times
from bench.scenarios import BY_NAME, SCENARIOS, Scenario, Unit
from bench.sections import rewrite
from bench.stage import Measuring, Pace

PAGE = Path(__file__).with_name("PROFILE.md")
_SECONDS = 6.0
_SAMPLES_A_SECOND = 250
_SHOWN = 14
_LINE = re.compile(r":\d+\)$")  # of `function (file.py:12)`
_LOADS = [one.name for one in SCENARIOS if one.unit is not Unit.MEMORY and not one.uses_java_tool]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.profiling", description="Where a worker's CPU goes.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(_LOADS)}; all when none")
    parser.add_argument("--stage", choices=["plaintext", "tls"], help="leave the other one out")
    args = parser.parse_args()
    sampler = shutil.which("py-spy")
    if sampler is None:
        print("py-spy is not on PATH: install it into any environment and put its bin folder there", file=sys.stderr)
        return 2
    wanted = [BY_NAME[name] for name in args.scenarios or _LOADS]
    lines = _shown(_profiles(wanted, args.stage, sampler))
    if not args.scenarios and args.stage is None:
        rewrite(PAGE, "\n".join(lines))
        print(f"written: {PAGE}", file=sys.stderr)
    return 0


def _shown(lines: Iterable[str]) -> list[str]:
    """The lines, each printed when it is there: a run takes minutes."""
    found = []
    for line in lines:
        print(line, flush=True)
        found.append(line)
    return found


def _profiles(wanted: Sequence[Scenario], only: str | None, sampler: str) -> Iterator[str]:
    yield f"# Where the CPU of a worker goes\n\nWritten by `python -m bench.profiling`, {machine.facts()['headgate']}."
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
        tempfile.TemporaryDirectory(prefix="headgate-bench-", dir=data_root()) as data,
        Loader(Path(folder)) as loader,
    ):
        tls = certificates.make(Path(folder) / "certificates")
        for stage, title, used in (("plaintext", "Plaintext", None), ("tls", "TLS on both sides", tls)):
            if only in {None, stage}:
                yield f"\n## {title}"
                with BenchCluster(folder=Path(data) / stage, brokers=1, tls=used) as cluster:
                    cluster.fill(loader, megabytes=20)
                    yield from _profile_all(wanted, sampler, loader, cluster, Path(folder) / stage)


def _profile_all(
    wanted: Sequence[Scenario], sampler: str, loader: Loader, cluster: BenchCluster, folder: Path
) -> Iterator[str]:
    gateway = Headgate(cluster.upstream, folder)
    gateway.start()
    try:
        measuring = Measuring(Pace(rounds=1, counted_s=_SECONDS, warm_s=2.0), loader, cluster, folder)
        for scenario in wanted:
            yield from _profile(scenario, gateway, measuring, sampler, folder)
    finally:
        gateway.stop()


def _profile(scenario: Scenario, gateway: Headgate, measuring: Measuring, sampler: str, folder: Path) -> Iterator[str]:
    pids = gateway.pids()
    measuring.figures(scenario, gateway)  # warm, and it shows which process works
    busiest = max(pids, key=lambda pid: sum(times(pid)))
    before, stacks = times(busiest), folder / "stacks"
    sampling = subprocess.Popen(
        [
            *(sampler, "record", "--nonblocking", "--pid", str(busiest), "--duration", f"{_SECONDS:.0f}"),
            *("--rate", str(_SAMPLES_A_SECOND), "--format", "raw", "--output", str(stacks)),
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        figures = measuring.figures(scenario, gateway)
        _, said = sampling.communicate(timeout=30)
    finally:
        sampling.kill()
        sampling.wait()
    user, system = (after - start for after, start in zip(times(busiest), before, strict=True))
    if sampling.returncode != 0:
        raise BenchError(f"py-spy failed: {said[-300:]}")
    yield f"\n### {scenario.title} (`{scenario.name}`)\n"
    yield (
        f"{figures['calls'] / figures['seconds']:,.0f} calls/s while sampled; user {user / (user + system):.0%},"
        f" system {system / (user + system):.0%} of the worker's CPU\n"
    )
    yield from _functions(stacks)


def _functions(stacks: Path) -> Iterator[str]:
    """Where samples ended, and where they ended or passed through, as shares of all samples."""
    ended: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for line in stacks.read_text(encoding="utf-8").splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [_LINE.sub(")", frame) for frame in stack.split(";")]
        ended[frames[-1]] += int(count)
        passed.update(dict.fromkeys(frames, int(count)))
    total = max(1, ended.total())
    yield "| function | samples that ended in it | or passed through |"
    yield "|---|---|---|"
    for frame, samples in ended.most_common(_SHOWN):
        name = "uvloop itself (epoll and callbacks)" if frame.startswith("Runner.run ") else f"`{frame}`"
        yield f"| {name} | {samples / total:.0%} | {passed[frame] / total:.0%} |"


if __name__ == "__main__":
    sys.exit(main())
