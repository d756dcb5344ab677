"""Resolves the names of topic ids and the ids of topic names.

Produce and Fetch carry topic ids only, from version 13 on. The service account asks the cluster, for a batch of
topics at a time; Metadata responses to clients are not parsed.

Invariant: the number of topics is bounded, and the least recently used ones leave the table first, so that topics which
come and go cannot fill it. A topic that has left is still reported: its intervals keep their `TopicRef`. If it is used
again, it gets a new one.
"""

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from headgate.activity.model.intervals import TopicRef
from headgate.config.model import UpstreamConfig
from headgate.kafka.connections import Connections, dialler_of
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from headgate.wire.schema import ZERO_UUID

_MOST_TOPICS: Final = 65_536
_TOPICS_PER_REQUEST: Final = 500
_MOST_ATTEMPTS: Final = 3  # a broker may not know yet of a new topic

NamesAndIds = Sequence[tuple[str, bytes]]
LookUp = Callable[[Sequence[str], Sequence[bytes]], Awaitable[NamesAndIds]]  # by names, by ids


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _topic_id_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


class TopicResolver:
    """One `TopicRef` for each topic of this worker, by the id or the name that requests carry."""

    def __init__(self, look_up: LookUp, most: int = _MOST_TOPICS) -> None:
        self._look_up = look_up
        self._most = most
        self._refs: OrderedDict[bytes, TopicRef] = OrderedDict()  # the least recently used first
        self._unresolved: OrderedDict[TopicRef, None] = OrderedDict()  # looked up beside those that are asked for
        self.rest = TopicRef()
        self._lock = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._refs)

    def ref(self, carried: bytes, *, by_id: bool) -> TopicRef:
        """The topic that a connection begins to use."""
        found = self._refs.get(carried)
        if found is not None:
            self._refs.move_to_end(carried)
            return found
        # An id and a name of 16 bytes do not collide in practice: ids are random.
        new = TopicRef(id=topic_id_text(carried)) if by_id else TopicRef(name=carried.decode(errors="replace"))
        self._refs[carried] = new
        self._unresolved[new] = None
        for table in (self._refs, self._unresolved):
            if len(table) > self._most:
                table.popitem(last=False)
        return new

    async def resolve(self, refs: Iterable[TopicRef]) -> None:
        """Look up what is missing of these; what is not found stays None. `ClusterError` if no broker answers."""
        async with self._lock:
            wanted = [ref for ref in dict.fromkeys(refs) if _is_incomplete(ref)]
            if wanted:
                await self._resolve_some(wanted)

    async def _resolve_some(self, wanted: Sequence[TopicRef]) -> None:
        """Look up these, and as many others as one request can ask for."""
        others = islice(self._unresolved, _TOPICS_PER_REQUEST)
        some = list(dict.fromkeys((*wanted, *others)))[:_TOPICS_PER_REQUEST]
        named = {ref.name: ref for ref in some if ref.name is not None}
        by_id = {_topic_id_bytes(ref.id): ref for ref in some if ref.name is None and ref.id is not None}
        for name, topic_id in await self._look_up(list(named), list(by_id)):
            if (ref := by_id.get(topic_id)) is not None:
                ref.name = name
            if (ref := named.get(name)) is not None and topic_id != ZERO_UUID:
                ref.id = topic_id_text(topic_id)
        for ref in some:
            ref.lookups += 1
            if not _is_incomplete(ref):
                self._unresolved.pop(ref, None)


def _is_incomplete(ref: TopicRef) -> bool:
    """Whether its name or its id is missing, and may still be found."""
    return (ref.name is None) != (ref.id is None) and ref.lookups < _MOST_ATTEMPTS


async def look_up_topics(upstream: UpstreamConfig, names: Sequence[str], ids: Sequence[bytes]) -> NamesAndIds:
    """Send a Metadata request as the service account, which needs DESCRIBE on the topics."""
    dialler = await asyncio.to_thread(dialler_of, upstream)
    topics = [MetadataRequestTopic(name=name) for name in names]
    topics += [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    async with Connections(dialler) as connections:
        link = await connections.bootstrap()
        request = MetadataRequest(topics=tuple(topics), allow_auto_topic_creation=False)
        response = await link.ask(request, lowest=12, highest=13)
    return [(one.name, one.topic_id) for one in response.topics if not one.error_code and one.name]
