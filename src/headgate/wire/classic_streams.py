"""What Kafka Streams puts into the classic group protocol: the subscription and the assignment of each member.

In JoinGroup and SyncGroup a consumer's own data is opaque to the broker: ConsumerProtocolSubscription and
ConsumerProtocolAssignment, and inside their user data SubscriptionInfo and AssignmentInfo of Kafka Streams, versions 1
to 11. Of these only what says who a member is and which tasks it holds is read; the rest is not looked at.

Invariant: as `primitives`, never trust a length; every failure is a `WireError`. Counts are compared with the bytes
that are left before anything is made.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple
from uuid import UUID

from headgate.base.errors import WireError
from headgate.wire.primitives import Buffer

ASSIGNOR: Final = "stream"  # the name of the assignor of Kafka Streams in JoinGroup
_NEWEST: Final = 11
_LATEST_VERSION_FROM: Final = 3  # the newest version that a member, or each member, knows
_FORMER_TASKS_TO: Final = 6  # of a member before the rebalance: active ones and standbys
_NAMED_TOPOLOGIES_FROM: Final = 10
_INT16: Final = Struct(">h")
_UINT16: Final = Struct(">H")
_INT32: Final = Struct(">i")
_TASK: Final = Struct(">ii")
_UUID_BYTES: Final = 16


class StreamsTask(NamedTuple):
    """`subtopology` is its number, behind the name of its named topology if it has one."""

    subtopology: str
    partition: int


class StreamsSubscription(NamedTuple):
    """The topics that a member reads; `process` and `endpoint` are None in a format that is not known."""

    topics: tuple[str, ...]
    process: str | None = None
    endpoint: str | None = None


class StreamsAssignment(NamedTuple):
    """The tasks of a member; `topics` are those of each active task, as far as the assignment says them."""

    active: tuple[StreamsTask, ...] = ()
    standby: tuple[StreamsTask, ...] = ()
    topics: tuple[tuple[StreamsTask, str], ...] = ()


class _ClassicReader:
    """Reads big-endian fields one after the other."""

    __slots__ = ("_data", "_pos")

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._pos = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._pos

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def count(self, item_bytes: int) -> int:
        """The length of an array whose items have at least so many bytes."""
        found = self.int32()
        if not 0 <= found <= self.left // item_bytes:
            raise WireError(f"an array of {found} items where {self.left} bytes are left")
        return found

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise WireError(f"{size} bytes where {self.left} are left")
        begin, self._pos = self._pos, self._pos + size
        return bytes(self._data[begin : self._pos])

    def text(self) -> str:
        return _decoded(self.take(self.int16()), "utf-8")

    def data(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else self.take(size)

    def skip_java_text(self) -> None:
        self.take(self._number(_UINT16))

    def task(self, version: int) -> StreamsTask:
        subtopology, partition = _TASK.unpack(self.take(_TASK.size))
        if subtopology < 0 or partition < 0:
            raise WireError(f"the task {subtopology}_{partition}")
        name = _decoded(self.take(2 * self.count(2)), "utf-16-be") if version >= _NAMED_TOPOLOGIES_FROM else ""
        return StreamsTask(f"{name}__{subtopology}" if name else str(subtopology), partition)

    def _number(self, form: Struct) -> int:
        try:
            (found,) = form.unpack_from(self._data, self._pos)
        except StructError:
            raise WireError(f"a number of {form.size} bytes where {self.left} are left") from None
        self._pos += form.size
        return int(found)


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return str(data, encoding)
    except UnicodeDecodeError as error:
        raise WireError(f"text that is not {encoding} ({error.reason})") from None


def read_subscription(metadata: Buffer) -> StreamsSubscription:
    """The metadata of a member in JoinGroup. What Kafka Streams adds is left out if it cannot be read."""
    reader = _ClassicReader(metadata)
    reader.int16()  # later versions of the consumer protocol only append fields
    topics = tuple(reader.text() for _ in range(reader.count(2)))
    user_data = reader.data()
    try:
        process, endpoint = _read_subscription_info(user_data or b"")
    except WireError:
        return StreamsSubscription(topics)
    return StreamsSubscription(topics, process, endpoint)


def _read_subscription_info(data: bytes) -> tuple[str, str | None]:
    reader = _ClassicReader(data)
    version = _known_version(reader)
    if version >= _LATEST_VERSION_FROM:
        reader.int32()
    process = str(UUID(bytes=reader.take(_UUID_BYTES)))
    if version == 1:
        return process, None
    if version <= _FORMER_TASKS_TO:
        for _ in range(2):
            reader.take(_TASK.size * reader.count(_TASK.size))
    return process, _decoded(reader.data() or b"", "utf-8") or None


def read_assignment(assignment: Buffer) -> StreamsAssignment:
    """The assignment of a member in SyncGroup; `WireError` when the tasks in it cannot be read."""
    reader = _ClassicReader(assignment)
    reader.int16()
    partitions: list[tuple[str, int]] = []
    for _ in range(reader.count(6)):
        topic = reader.text()
        partitions += [(topic, reader.int32()) for _ in range(reader.count(4))]
    info = _ClassicReader(reader.data() or b"")
    version = _known_version(info)
    if version >= _LATEST_VERSION_FROM:
        info.int32()
    active = tuple(info.task(version) for _ in range(info.count(_TASK.size)))
    standby = tuple(_standby_task(info, version) for _ in range(info.count(_TASK.size + 4)))
    # The assignor lists one task for each partition, in the order of topics and partitions.
    pairs = zip(active, sorted(partitions), strict=True) if len(active) == len(partitions) else ()
    topics = dict.fromkeys((task, topic) for task, (topic, _) in pairs)
    return StreamsAssignment(tuple(dict.fromkeys(active)), tuple(dict.fromkeys(standby)), tuple(topics))


def _standby_task(info: _ClassicReader, version: int) -> StreamsTask:
    task = info.task(version)
    for _ in range(info.count(6)):
        info.skip_java_text()
        info.int32()
    return task


def _known_version(reader: _ClassicReader) -> int:
    version = reader.int32()
    if not 1 <= version <= _NEWEST:
        raise WireError(f"version {version} of the assignment protocol of Kafka Streams")
    return version
