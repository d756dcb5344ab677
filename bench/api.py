"""`python -m bench.api`: what the REST interface of a large estate answers to many readers at once, as markdown tables.

The estate is that of `bench/lineage.py`, in tables, and in each domain a share group with dead letters, lags and
changes of the last hour. A real `headgate web` serves it; the readers are connections of this process that ask one
request after the other, with a pause between them, as open pages do. `--pause-ms 0` measures the throughput instead.
Each kind of request is measured alone: about names that are asked for the first time, about the same few names again,
and with the ETag of an answer. Target: 50 ms (p95) with 50 readers at 100,000 edges.
"""

import argparse
import asyncio
import contextlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench import machine
from bench.lineage import (
    EDGES_OF_DOMAIN,
    READ_BY_GROUP,
    TOPICS_OF_DOMAIN,
    pairs,
    topic,
    uses,
    write_rows,
    write_tables,
)
from headgate.lineage.graph import LineageUse
from headgate.tables.definitions import table_named

TARGET_MS = 50
_START_S = 60
_FEW_NAMES = 20
_MINUTES = 60
_MINUTE_MS = 60_000
_OK, _NOT_MODIFIED, _REFUSED = 200, 304, 400


class Kind(NamedTuple):
    """A kind of request: the target of one about the topic `name`.

    Without `has_names` all requests are the same one. Where the answer is `of_a_minute`, a known one may be sent again.
    """

    title: str
    target: Callable[[str], str]
    has_names: bool = True
    of_a_minute: bool = False
    is_refused: bool = False


def _number(name: str) -> int:
    """A number from 1 to 1,000 for the name of a topic, for resources without names."""
    return int("".join(filter(str.isdigit, name))) % 1_000 + 1


KINDS = (
    Kind("graph, 1 hop", lambda name: f"/api/v1/graph?focus={name}&hops=1"),
    Kind("graph, 2 hops, components", lambda name: f"/api/v1/graph?focus={name}&hops=2&collapsed=false"),
    Kind("graph, 2 hops, Mermaid", lambda name: f"/api/v1/graph?focus={name}&hops=2&format=mermaid"),
    Kind("graph, refused", lambda name: f"/api/v1/graph?kinds=topic,consumer_group#{name}", is_refused=True),
    Kind("overlay", lambda _: "/api/v1/graph/overlay", has_names=False, of_a_minute=True),
    Kind("impact", lambda name: f"/api/v1/topics/{name}/impact"),
    Kind("topics, one page", lambda name: f"/api/v1/topics?contains={name[:14]}"),
    Kind("topic", lambda name: f"/api/v1/topics/{name}"),
    Kind("search", lambda name: f"/api/v1/search?q={name}"),
    Kind("share groups, one page", lambda name: f"/api/v1/share-groups?contains={name[:12]}"),
    Kind("attention", lambda name: f"/api/v1/attention?limit={_number(name)}", of_a_minute=True),
)


class Measured(NamedTuple):
    p50: float
    p95: float
    p99: float
    per_s: float
    failed: int
    bytes: float

    def cells(self) -> str:
        size = f"{self.bytes / 1024:.1f}"
        return f"{self.p50:.1f} | {self.p95:.1f} | {self.p99:.1f} | {self.per_s:,.0f} | {size} | {self.failed}"


def share_group(domain: int) -> str:
    return f"domain-{domain:05}.share-group"


def share_group_uses(domains: int) -> Iterator[LineageUse]:
    for domain in range(domains):
        for number in range(READ_BY_GROUP):
            yield LineageUse("share_group", share_group(domain), topic(domain, number), "read")


def write_happenings(root: Path, domains: int, now_ms: int) -> None:
    """Lags and dead letters by minute and topic, and changes, of the share groups: what attention and overlay read."""
    now_ms -= now_ms % _MINUTE_MS
    minutes = range(now_ms - _MINUTES * _MINUTE_MS, now_ms, _MINUTE_MS)
    known = [(domain, share_group(domain)) for domain in range(domains)]
    by_minute = [(group, topic(domain, number), at) for domain, group in known for number in range(3) for at in minutes]
    write_rows(
        root,
        table_named("group_lags"),
        ({"group": group, "kind": "share", "topic": name, "lag": at % 977, "at": at} for group, name, at in by_minute),
    )
    write_rows(
        root,
        table_named("dlq_rates"),
        (
            {"group": group, "topic": name, "minute": at, "processed": 500, "dead_lettered": place % 7}
            for place, (group, name, at) in enumerate(by_minute)
        ),
    )
    write_rows(
        root,
        table_named("changes"),
        (
            {"event_id": f"{group}-{at}", "event": "config_changed", "subject_kind": "share_group", "subject": group}
            | {"detail": "{}", "at": at}
            for _, group in known
            for at in minutes[::6]
        ),
    )


@contextlib.contextmanager
def served(root: Path, folder: Path) -> Iterator[tuple[int, int]]:
    """A web server on these tables, without a cluster: its port and its process id."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = folder / "headgate.toml"
    config.write_text(
        '[upstream]\nbootstrap = ["127.0.0.1:1"]\n[activity]\nenable = false\n[share_groups]\nenable = false\n'
        f'[tables]\npath = "{root}"\n'
        f'[web]\nlisten = "127.0.0.1:{port}"\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "headgate.cli.main", "web", "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        by = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/topics?limit=1", timeout=_START_S).close()
                break
            if process.poll() is not None or time.monotonic() > by:
                raise SystemExit("headgate web does not serve")
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str, etag: str
) -> tuple[int, int, str]:
    """The status, the size and the ETag of an answer, on a connection that stays open."""
    given = f"If-None-Match: {etag}\r\n" if etag else ""
    writer.write(f"GET {target.partition('#')[0]} HTTP/1.1\r\nHost: localhost\r\n{given}\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in head[1:])}
    size = int(fields.get("content-length", "0"))
    await reader.readexactly(size)
    return int(head[0].split()[1]), size, fields.get("etag", "")


async def measure(
    port: int, targets: list[str], *, readers: int, pause_s: float, expected: Collection[int], etags: bool
) -> Measured:
    """All targets, divided among the readers. With `etags` each is asked for once before, without being measured."""
    taken: list[float] = []
    sizes: list[int] = []
    failed = 0
    ready = asyncio.Barrier(readers)

    async def read(number: int) -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        mine = targets[number::readers]
        known: dict[str, str] = {}
        for target in dict.fromkeys(mine) if etags else ():
            known[target] = (await ask(reader, writer, target, ""))[2]
        await ready.wait()
        await asyncio.sleep(pause_s * number / readers)
        for target in mine:
            begin = time.perf_counter()
            status, size, etag = await ask(reader, writer, target, known.get(target, ""))
            taken.append((time.perf_counter() - begin) * 1000)
            sizes.append(size)
            failed += status not in expected
            if etags:
                known[target] = etag
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
        writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*(read(number) for number in range(readers)))
    seconds = time.perf_counter() - begin
    parts = statistics.quantiles(taken, n=100)
    return Measured(
        statistics.median(taken), parts[94], parts[98], len(taken) / seconds, failed, statistics.mean(sizes)
    )


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def measured_names(kind: Kind, names: list[str]) -> Iterable[tuple[str, list[str]]]:
    """The rows of a kind, with the names that each asks for."""
    few = names[:_FEW_NAMES]
    if kind.is_refused:
        return (("new", names),)
    return (*((("new", names),) if kind.has_names else ()), ("again", few), ("304", few))


def expected_statuses(kind: Kind, title: str) -> Collection[int]:
    if kind.is_refused:
        return {_REFUSED}
    if title != "304":
        return {_OK}
    return {_NOT_MODIFIED, _OK} if kind.of_a_minute else {_NOT_MODIFIED}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=100_000)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--requests", type=int, default=40, help="of each reader, for each kind (40)")
    parser.add_argument("--pause-ms", type=int, default=500, help="between two requests of a reader (500)")
    args = parser.parse_args()
    chance = random.Random(1)
    domains = max(1, args.edges // EDGES_OF_DOMAIN)
    flows = list(pairs(domains, chance))
    # Some topics of the estate are used by nothing.
    known = sorted({flow.in_topic for flow in flows} | {flow.out_topic for flow in flows})
    print(", ".join(f"{name} {value}" for name, value in machine.facts().items()), end="\n\n")
    print(f"{args.edges:,} edges, {args.readers} readers with {args.pause_ms} ms between two requests.", end="\n\n")
    print("| request | names | p50 ms | p95 ms | p99 ms | per second | KiB | failed |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="headgate-api-") as folder:
        root = Path(folder) / "tables"
        every_topic = (topic(domain, number) for domain in range(domains) for number in range(TOPICS_OF_DOMAIN))
        edges = (*uses(domains, chance, flows), *share_group_uses(domains))
        write_tables(root, flows, edges, every_topic)
        write_happenings(root, domains, time.time_ns() // 1_000_000)
        worst = 0.0
        with served(root, Path(folder)) as (port, pid):
            for kind in KINDS:
                count = args.readers * args.requests
                names = chance.sample(known, min(count, len(known)))
                for title, some in measured_names(kind, names):
                    targets = [kind.target(some[number % len(some)]) for number in range(count)]
                    found = asyncio.run(
                        measure(
                            port,
                            targets,
                            readers=args.readers,
                            pause_s=args.pause_ms / 1000,
                            expected=expected_statuses(kind, title),
                            etags=title == "304",
                        )
                    )
                    worst = max(worst, found.p95)
                    print(f"| {kind.title} | {title} | {found.cells()} |", flush=True)
            print(f"\nHighest memory of the server: {memory_mb(pid):.0f} MiB.")
    print(f"Target {TARGET_MS} ms: {'met' if worst <= TARGET_MS else '**missed**'}, the slowest p95 is {worst:.1f} ms.")


if __name__ == "__main__":
    main()
