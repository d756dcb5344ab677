"""`python -m bench.profiling`: where a worker's CPU goes, plaintext and TLS, into `bench/PROFILE.md`.

Runs Headgate alone under each load while py-spy samples its busiest process from outside, and prints for each the
split into user and system time and the functions in which samples ended. py-spy also samples threads that wait: what
the samples of a thread stand for is cut down to the CPU time that the kernel counts for it, first where its event loop
waits. py-spy is no dependency of the project: put it on PATH (`pip install py-spy` into any environment). Nothing here
is a measurement: sampling costs time. Sections of the page that are written by hand stay; a run that is narrowed to
scenarios or a stage is only printed.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
_LOOP = "Runner.run "  # of asyncio: the event loop itself, which py-spy cannot look into
_THREAD = re.compile(r"thread \((\d+)\)")
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
    before, stacks, cpu_before = times(busiest), folder / "stacks", _thread_cpu(busiest)
    sampling = subprocess.Popen(
        [
            *(sampler, "record", "--nonblocking", "--threads"),
            *("--pid", str(busiest), "--duration", f"{_SECONDS:.0f}"),
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
    cpu = {thread: seconds - cpu_before.get(thread, 0.0) for thread, seconds in _thread_cpu(busiest).items()}
    user, system = (after - start for after, start in zip(times(busiest), before, strict=True))
    if sampling.returncode != 0:
        raise BenchError(f"py-spy failed: {said[-300:]}")
    yield f"\n### {scenario.title} (`{scenario.name}`)\n"
    yield (
        f"{figures['calls'] / figures['seconds']:,.0f} calls/s while sampled; user {user / (user + system):.0%},"
        f" system {system / (user + system):.0%} of the worker's CPU\n"
    )
    yield from _functions(stacks.read_text(encoding="utf-8"), cpu)


def _thread_cpu(pid: int) -> dict[int, float]:
    """The CPU seconds of each thread."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # it has ended
            found[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


def _functions(stacks: str, cpu: Mapping[int, float]) -> Iterator[str]:
    """Where CPU time was spent, and in what was called from there, as shares of all CPU time."""
    ended, passed = cpu_by_function(stacks, cpu, _SAMPLES_A_SECOND)
    total = max(1e-9, sum(ended.values()))
    yield "| function | CPU in it | or in what it called |"
    yield "|---|---|---|"
    for frame, seconds in sorted(ended.items(), key=lambda item: -item[1])[:_SHOWN]:
        name = "uvloop itself (epoll and callbacks)" if frame.startswith(_LOOP) else f"`{frame}`"
        name = "threads outside of Python (librdkafka)" if frame == OUTSIDE else name
        yield f"| {name} | {seconds / total:.0%} | {passed[frame] / total:.0%} |"


OUTSIDE = "outside"


def cpu_by_function(stacks: str, cpu: Mapping[int, float], rate: float) -> tuple[dict[str, float], dict[str, float]]:
    """CPU seconds that ended in each function, and that passed through it, by py-spy's raw samples of threads.

    A sample stands for 1 / `rate` seconds, of a function or of waiting; together those of a thread stand for no more
    than its CPU seconds.
    """
    samples: list[tuple[int, list[str], float]] = []
    ended_in: dict[int, Counter[str]] = defaultdict(Counter)
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        name, *frames = [_LINE.sub(")", frame) for frame in stack.split(";")]
        if frames and (number := _THREAD.match(name)) is not None:
            samples.append((int(number[1]), frames, int(count) / rate))
            ended_in[int(number[1])][frames[-1]] += int(count)
    weights: dict[tuple[int, str], float] = {}
    for thread, counts in ended_in.items():
        in_loop = sum(count for frame, count in counts.items() if frame.startswith(_LOOP)) / rate
        elsewhere = counts.total() / rate - in_loop
        left = max(0.0, cpu.get(thread, 0.0) - elsewhere)
        for frame in counts:
            is_loop = frame.startswith(_LOOP)
            weights[thread, frame] = min(1.0, left / in_loop) if is_loop else min(1.0, cpu.get(thread, 0.0) / elsewhere)
    ended: dict[str, float] = defaultdict(float)
    passed: dict[str, float] = defaultdict(float)
    for thread, frames, seconds in samples:
        spent = seconds * weights[thread, frames[-1]]
        ended[frames[-1]] += spent
        for frame in set(frames):
            passed[frame] += spent
    ended[OUTSIDE] = passed[OUTSIDE] = sum(seconds for thread, seconds in cpu.items() if thread not in ended_in)
    return ended, passed


if __name__ == "__main__":
    sys.exit(main())
