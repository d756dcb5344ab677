"""Resolves the names of topic ids and the ids of topic names.

Produce and Fetch carry topic ids only, from version 13 on. The service account asks the cluster, for a batch of
topics at a time; Metadata responses to clients are not parsed. The number of topics is bounded: those above share one
`TopicRef` without name and id.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Sequence
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


class TopicResolver:
    """One `TopicRef` for each topic of this worker, by the id or the name that requests carry."""

    def __init__(self, look_up: LookUp, most: int = _MOST_TOPICS) -> None:
        self._look_up = look_up
        self._most = most
        self._refs: dict[bytes, TopicRef] = {}
        self._unresolved: dict[bytes, int] = {}  # the number of attempts
        self.rest = TopicRef()
        self._lock = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._refs)

    def ref(self, carried: bytes, *, by_id: bool) -> TopicRef:
        found = self._refs.get(carried)
        if found is None:
            if len(self._refs) >= self._most:
                return self.rest
            # An id and a name of 16 bytes do not collide in practice: ids are random.
            found = TopicRef(id=topic_id_text(carried)) if by_id else TopicRef(name=carried.decode(errors="replace"))
            self._refs[carried] = found
            self._unresolved[carried] = 0
        return found

    async def resolve(self, refs: Iterable[TopicRef]) -> None:
        """Look up what is missing of these; what is not found stays None. `ClusterError` if no broker answers."""
        async with self._lock:
            if self._unresolved and not all(ref.name is not None and ref.id is not None for ref in refs):
                await self._resolve_some()

    async def _resolve_some(self) -> None:
        some = list(self._unresolved)[:_TOPICS_PER_REQUEST]
        named = {ref.name: ref for ref in map(self._refs.__getitem__, some) if ref.name is not None}
        by_id = {carried: self._refs[carried] for carried in some if self._refs[carried].name is None}
        for name, topic_id in await self._look_up(list(named), list(by_id)):
            if (ref := by_id.get(topic_id)) is not None:
                ref.name = name
            if (ref := named.get(name)) is not None and topic_id != ZERO_UUID:
                ref.id = topic_id_text(topic_id)
        for carried in some:
            ref = self._refs[carried]
            self._unresolved[carried] += 1
            if (ref.name is not None and ref.id is not None) or self._unresolved[carried] >= _MOST_ATTEMPTS:
                del self._unresolved[carried]


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
