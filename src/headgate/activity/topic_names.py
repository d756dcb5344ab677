"""The topics that were seen, and what is not known of them: the name of an id, the id of a name.

Produce from version 13 and Fetch from version 13 on carry ids only. The cluster is asked, by the service account and a
few at a time; the answers to clients' own Metadata calls are not walked for it.

One rule: bounded. A topic that cannot be told apart from the rest any more is one without name and id.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from headgate.activity.model.intervals import TopicRef
from headgate.config.model import UpstreamConfig
from headgate.kafka.connections import Connections, dialler_of
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headgate.wire.schema import ZERO_UUID

MOST_TOPICS: Final = 65_536
_METADATA: Final = 3
_AT_ONCE: Final = 500
_TRIES: Final = 3  # a broker may not have heard yet of a topic that was made a moment ago

# The names and ids of topics, asked for by names and ids.
Found = Sequence[tuple[str, bytes]]
Ask = Callable[[Sequence[str], Sequence[bytes]], Awaitable[Found]]


def text_of(topic_id: bytes) -> str:
    """A topic's id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


class Topics:
    """One reference for each topic of this worker, by its id or by its name as a call carries it."""

    def __init__(self, ask: Ask, most: int = MOST_TOPICS) -> None:
        self._ask = ask
        self._most = most
        self._refs: dict[bytes, TopicRef] = {}
        self._unknown: dict[bytes, int] = {}  # how often they were asked for
        self.rest = TopicRef()
        self._turn = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._refs)

    def ref(self, carried: bytes, *, by_id: bool) -> TopicRef:
        found = self._refs.get(carried)
        if found is None:
            if len(self._refs) >= self._most:
                return self.rest
            # A name of 16 bytes could be an id, and an id a name: nobody sends both for one.
            found = TopicRef(topic_id=text_of(carried)) if by_id else TopicRef(name=carried.decode(errors="replace"))
            self._refs[carried] = found
            self._unknown[carried] = 0
        return found

    async def resolve(self, refs: Iterable[TopicRef]) -> None:
        """Learn what is missing of these; what cannot be learnt stays None. `ClusterError` when nobody answers."""
        async with self._turn:
            if self._unknown and not all(ref.name is not None and ref.id is not None for ref in refs):
                await self._resolve_some()

    async def _resolve_some(self) -> None:
        some = list(self._unknown)[:_AT_ONCE]
        named = {ref.name: ref for ref in map(self._refs.__getitem__, some) if ref.name is not None}
        by_id = {carried: self._refs[carried] for carried in some if self._refs[carried].name is None}
        for name, topic_id in await self._ask(list(named), list(by_id)):
            if (ref := by_id.get(topic_id)) is not None:
                ref.name = name
            if (ref := named.get(name)) is not None and topic_id != ZERO_UUID:
                ref.id = text_of(topic_id)
        for carried in some:
            ref = self._refs[carried]
            self._unknown[carried] += 1
            if (ref.name is not None and ref.id is not None) or self._unknown[carried] >= _TRIES:
                del self._unknown[carried]


def ask_as_service(upstream: UpstreamConfig) -> Ask:
    """Metadata from the service account, which must be able to describe the topics."""

    async def ask(names: Sequence[str], ids: Sequence[bytes]) -> Found:
        dialler = await asyncio.to_thread(dialler_of, upstream)
        topics = [MetadataRequestTopic(name=name) for name in names]
        topics += [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
        request = MetadataRequest(topics=tuple(topics), allow_auto_topic_creation=False)
        async with Connections(dialler) as connections:
            link = await connections.bootstrap()
            answer = await link.ask(_METADATA, request, MetadataResponse, lowest=12, highest=13)
        return [(one.name, one.topic_id) for one in answer.topics if not one.error_code and one.name]

    return ask
