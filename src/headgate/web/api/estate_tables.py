"""The tables as the resources read them: off the event loop, on a bounded pool, and a graph once for each version.

- Versions are looked up at most once in `_LOOK_S`, so a request that finds its answer in memory touches no file. On an
  object store a look is a request for each table, so there it is at most once in `_LOOK_STORE_S`, and side by side.
- What many answers are made of, such as the graph of an estate, is loaded when it is first asked for. When its tables
  have changed it is loaded again, and until that is done requests get the former one, with the versions of that.
- Loads have a thread of their own, one after the other: however many times clients ask for, others are answered.
- What waits for a thread is bounded: above it a request is refused, and can be repeated.
"""

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import HeadgateError
from headgate.base.locations import Location, ObjectLocation
from headgate.base.threads import off_loop
from headgate.lineage.estate import Estate, NoTableError, SeveralClustersError
from headgate.lineage.estate_map import MAX_NODES, EstateMap, MapRow
from headgate.lineage.graph import LineageFlow, LineageGraph, LineageUse
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition, TableReader
from headgate.tables.storage import TableStamp
from headgate.tables.table import Table
from headgate.web.estate_facts import MAX_EDGES
from headgate.web.estate_topics import EstatePort
from headgate.web.visible_names import VisibleNames

log = structlog.get_logger()

GRAPH_TABLES: Final = ("app_io", "applications", "lineage_edges")
MAX_GRAPH_EDGES: Final = 1_000_000
_THREADS: Final = 4
_MOST_WAITING: Final = 128
_MOST_LOADS: Final = 8
_LOOK_S: Final = 0.2
_LOOK_STORE_S: Final = 2.0
_LOOK_THREADS: Final = 8
_RETRY_S: Final = 5.0
_MOST_KEPT: Final = 3  # each of another time or cluster; a graph of 100,000 edges takes some 100 MiB
_MOST_LIMITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EstateLimits:
    """Limits of waiting requests, of loads, of kept results, and of the size of an estate and its map."""

    waiting: int = _MOST_WAITING
    loads: int = _MOST_LOADS
    kept: int = _MOST_KEPT
    graph_edges: int = MAX_GRAPH_EDGES
    map_nodes: int = MAX_NODES
    newer_edges: int = MAX_EDGES  # of tables to which what is newer in the topics is added


_LIMITS: Final = EstateLimits()


Stamps = tuple[TableStamp | int | None, ...]
EstateKey = tuple[str | None, int | None]  # the cluster and the time that are asked for
T = TypeVar("T")


_BUSY: Final = "Too many requests wait for the tables: repeat the request in a second"


class TooBusyError(HeadgateError):
    """More requests wait for a thread than is allowed; they can be repeated."""


class GraphTooLargeError(HeadgateError):
    """The graph of the estate does not fit into memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEstate:
    """The graph and the map of one cluster at one time; `stamps` are those of the tables that they were made of.

    `is_provisional`: some of it comes from the topics, because the tables do not have it yet.
    """

    stamps: Stamps
    cluster: str | None
    graph: LineageGraph
    map: EstateMap
    is_provisional: bool = False
    _visible: dict[VisibleNames, Sequence[bool]] = field(default_factory=dict)

    def visible(self, names: VisibleNames) -> Sequence[bool] | None:
        """The nodes of the map that the caller may see; None for all."""
        if not names.are_limited:
            return None
        found = self._visible.get(names)
        if found is None:
            found = [names.has(name) for _, name in self.map.nodes]
            if len(self._visible) < _MOST_LIMITS:
                self._visible[names] = found
        return found


class Upstream(Protocol):
    """The Kafka cluster that this server is connected to."""

    @property
    def cluster(self) -> str | None:
        """The id of the cluster; None before it has answered."""


class Versioned(Protocol):
    """Data loaded from tables, with the versions of these."""

    @property
    def stamps(self) -> Stamps: ...


V = TypeVar("V", bound=Versioned)


@dataclass(slots=True)
class _Slot(Generic[V]):
    """The data of one cluster and time, and the last load, of the versions that it `tried`."""

    loaded: V | None = None
    loading: "Future[V] | None" = None
    tried: Stamps = ()
    failure: HeadgateError | None = None
    retry_at: float = 0.0


class EstateTables:
    """Reads the tables in the folder `root`. Its coroutines run on the event loop, all else on the pool."""

    def __init__(
        self,
        root: Location,
        clock: Clock,
        topics: EstatePort | None = None,
        upstream: Upstream | None = None,
        *,
        facts_prefix: str = "headgate.",
        connect_topics: Collection[str] = (),
        limits: EstateLimits = _LIMITS,
    ) -> None:
        """`connect_topics` are those that Connect clusters of the upstream keep for themselves."""
        self._limits = limits
        self._root = root
        self.facts_prefix = facts_prefix
        self._connect_topics = frozenset(connect_topics)
        self._clock = clock
        self._topics = topics
        self._upstream = upstream
        self._default: str | None = None
        self._looked_for: tuple[Stamps | int | str | None, ...] = ()
        self._is_large = False
        self._reader = TableReader(root)
        self._is_on_store = isinstance(root, ObjectLocation)
        self._lookers = ThreadPoolExecutor(_LOOK_THREADS, thread_name_prefix="headgate-tables-look")
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="headgate-tables")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="headgate-tables-load")
        self._loads: list[Future[Any]] = []
        self._waiting = 0
        self._stamps: dict[str, TableStamp | None] = {}
        self._looked_at = 0.0
        self._slots: dict[str, OrderedDict[EstateKey, _Slot[Any]]] = {}

    async def close(self) -> None:
        for pool in (self._loader, self._pool, self._lookers):
            await off_loop(functools.partial(pool.shutdown, wait=True, cancel_futures=True))
        self._reader.close()

    def now_ms(self) -> int:
        """The time in whole minutes: answers that depend on it are equal for a minute."""
        return self._clock.epoch_ms() // 60_000 * 60_000

    async def run(self, work: Callable[[], T]) -> T:
        """The result of blocking work; `TooBusyError` if too much of it waits already."""
        if self._waiting >= self._limits.waiting:
            raise TooBusyError(_BUSY)
        self._waiting += 1
        try:
            return await asyncio.shield(asyncio.wrap_future(self._pool.submit(work)))
        finally:
            self._waiting -= 1

    async def stamps(self, tables: Iterable[str]) -> Stamps:
        """The versions of these tables."""
        now = self._clock.monotonic()
        if not self._stamps or now - self._looked_at >= (_LOOK_STORE_S if self._is_on_store else _LOOK_S):
            self._looked_at = now
            self._stamps = await self.run(self._look)
        return tuple(self._stamps.get(name) for name in tables)

    async def versions(self) -> dict[str, int]:
        """The versions of all tables that exist."""
        await self.stamps(())
        return {name: stamp[0] for name, stamp in self._stamps.items() if stamp is not None}

    @property
    def is_upstream_unknown(self) -> bool:
        """Whether the upstream has not said yet which cluster it is."""
        return self._upstream is not None and self._upstream.cluster is None

    async def default_cluster(self) -> str | None:
        """The cluster of requests that name none: the upstream, once the tables or the topics have facts of it.

        Without it there has to be one cluster in the tables.
        """
        own = None if self._upstream is None else self._upstream.cluster
        if own is None or own == self._default:
            return own
        stamps = await self.stamps(TABLES)
        looked_for = (own, stamps, None if self._topics is None else self._topics.version())
        if looked_for != self._looked_for:
            if await self.run(lambda: self._has(own)):
                self._default = own
                return own
            self._looked_for = looked_for
        return None

    async def estate(self, *, cluster: str | None, as_of_ms: int | None) -> LoadedEstate:
        """The estate of a cluster at a time, None for now: then with what the tables do not have yet."""
        newer = None if self._topics is None or as_of_ms is not None or self._is_large else self._topics.version()
        also: tuple[int, ...] = ()
        if newer is not None:
            # Tables have the sums of the last day; before there are any, those of the topics are taken every minute.
            also = (newer,) if None not in await self.stamps(GRAPH_TABLES) else (newer, self.now_ms())
        asked = (cluster, as_of_ms)
        return await self.loaded(
            "estate", asked, GRAPH_TABLES, lambda stamps: self._estate(stamps, asked, newer is not None), also=also
        )

    async def loaded(
        self,
        what: str,
        key: EstateKey,
        tables: Iterable[str],
        load: Callable[[Stamps], V],
        *,
        also: Stamps = (),
    ) -> V:
        """The result of `load`, made once for each version of the tables; it may be one version old meanwhile.

        Of each `what`, the results of the last few keys are kept. `also` is a further part of the version.
        """
        stamps = (*await self.stamps(tables), *also)
        slot: _Slot[V] = self._slot(what, key)
        if slot.loaded is not None and slot.loaded.stamps == stamps:
            return slot.loaded
        if slot.loading is None or slot.loading.done():
            if slot.failure is not None and slot.tried == stamps and self._clock.monotonic() < slot.retry_at:
                if slot.loaded is None:
                    raise slot.failure
                return slot.loaded
            if not self._may_load():
                if slot.loaded is None:
                    raise TooBusyError(_BUSY)
                return slot.loaded
            slot.tried = stamps
            slot.loading = self._loader.submit(self._load, slot, lambda: load(stamps))
            self._loads.append(slot.loading)
        if slot.loaded is not None:
            return slot.loaded
        return await asyncio.shield(asyncio.wrap_future(slot.loading))

    def open_estate(self, *, cluster: str | None, as_of_ms: int | None) -> Estate:
        """An estate for questions that are answered from rows; used on the pool."""
        return Estate(self._root, as_of_ms=as_of_ms, cluster=cluster, reader=self._reader)

    @property
    def root(self) -> Location:
        """The folder of the tables."""
        return self._root

    @property
    def waiting_loads(self) -> int:
        """Loads that wait or are under way."""
        return sum(not one.done() for one in self._loads)

    def kept(self, what: str) -> int:
        """The number of results of `what` that are kept."""
        return len(self._slots.get(what, ()))

    @property
    def reader(self) -> TableReader:
        return self._reader

    def _may_load(self) -> bool:
        self._loads = [one for one in self._loads if not one.done()]
        return len(self._loads) < self._limits.loads

    def _slot(self, what: str, key: EstateKey) -> _Slot[Any]:
        slots = self._slots.setdefault(what, OrderedDict())
        slot = slots.setdefault(key, _Slot())
        slots.move_to_end(key)
        if len(slots) > self._limits.kept:
            # What most requests are about stays, whatever else is asked for.
            past = (one for one in slots if one[1] is not None)
            del slots[next(past, next(one for one in slots if one != (self._default, None)))]
        return slot

    # --- on the pool

    def _look(self) -> dict[str, TableStamp | None]:
        if self._is_on_store:
            return dict(zip(TABLES, self._lookers.map(self._reader.stamp, TABLES.values()), strict=True))
        return {name: self._reader.stamp(table) for name, table in TABLES.items()}

    def _has(self, cluster: str) -> bool:
        """Whether any fact of the cluster is known."""
        if self._topics is not None and cluster in self._topics.clusters():
            return True
        return any(self._has_rows(table, cluster) for table in TABLES.values() if "cluster_id" in table.columns.names)

    def _has_rows(self, table: Table, cluster: str) -> bool:
        where = [Condition("cluster_id", "=", cluster)]
        try:
            return bool(self._reader.rows(table, where=where, columns=("cluster_id",), limit=1).rows)
        except HeadgateError:
            return False  # those who ask for this table are told

    def _load(self, slot: _Slot[V], load: Callable[[], V]) -> V:
        try:
            loaded = load()
        except HeadgateError as failure:
            slot.failure, slot.retry_at = failure, self._clock.monotonic() + _RETRY_S
            if slot.loaded is not None:
                log.warning("tables could not be loaded, their former version is served", error=str(failure))
            raise
        slot.loaded, slot.failure = loaded, None
        return loaded

    def _estate(self, stamps: Stamps, asked: EstateKey, has_newer: bool) -> LoadedEstate:
        cluster, as_of_ms = asked
        estate = self.open_estate(cluster=cluster, as_of_ms=as_of_ms)
        try:
            # Both are begun before one of them is read, which decides on the cluster: so several are noticed.
            most = self._limits.graph_edges
            pairs, found = estate.flows(), estate.map_rows()
            flows, rows = list(bounded(pairs, most)), list(bounded(found, most))
        except NoTableError:
            if not has_newer:
                raise
            flows, rows = [], []
        known, is_provisional = estate.cluster, False
        if has_newer:
            self._is_large = len(rows) > self._limits.newer_edges
            known = known or self._only_cluster()
            is_provisional = known is not None and self._add_newer(known, rows, flows)
        if self._upstream is None or self._upstream.cluster in {None, known}:
            rows = [_internal(row) if row.topic in self._connect_topics else row for row in rows]
        uses = (LineageUse(*row[:4], row.use.filled) for row in rows)
        made = LineageGraph(uses, flows), EstateMap(rows, flows, max_nodes=self._limits.map_nodes)
        return LoadedEstate(stamps=stamps, cluster=known, graph=made[0], map=made[1], is_provisional=is_provisional)

    def _only_cluster(self) -> str | None:
        assert self._topics is not None
        clusters = sorted(self._topics.clusters())
        if len(clusters) > 1:
            raise SeveralClustersError((clusters[0], clusters[1]))
        return clusters[0] if clusters else None

    def _add_newer(self, cluster: str, rows: list[MapRow], flows: list[LineageFlow]) -> bool:
        """Add what the topics have and the tables do not have yet; return whether there is any."""
        assert self._topics is not None
        newer, newer_flows = self._topics.rows(cluster)
        edges, actors = {row[:4] for row in rows}, {flow[:2] for flow in flows}
        added = [row for row in newer if row[:4] not in edges]
        rows += added
        flows += (flow for flow in newer_flows if flow[:2] not in actors)
        return bool(added)


def _internal(row: MapRow) -> MapRow:
    return row._replace(use=row.use._replace(internal=True))


def bounded(rows: Iterator[T], most: int = MAX_GRAPH_EDGES) -> Iterator[T]:
    for number, row in enumerate(rows):
        if number >= most:
            raise GraphTooLargeError(
                f"The tables have more than {most:,} uses of topics in one cluster, which do not fit into "
                "memory: use `headgate lineage`, which reads five times as many"
            )
        yield row
