"""All versions of a group's topology that `headgate.topologies` keeps, read once from its start to its end.

A version is named INCARNATION/EPOCH/HASH, with the first twelve digits of the content hash. Versions of every
provenance are here; of the stores, only `kafka:` writes what members push to the topic.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.base.errors import ClusterError, HeadgateError
from headgate.config.model import Config
from headgate.facts import TopologyDeleted, TopologyDescribed, decode
from headgate.facts.topics import message_limit
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.shared_clients import SharedClients, clients_of
from headgate.kafka.topics import identify
from headgate.topologies.older_clients.assignment_topology import ASSIGNMENT
from headgate.topologies.stores.kafka_cache import PUSHED
from headgate.topologies.stores.kafka_store import SUFFIX

LATEST: Final = "latest"
PREVIOUS: Final = "previous"
HASH_DIGITS: Final = 12
_READ_TIMEOUT_S: Final = 60.0
_MOST_LISTED: Final = 5


def version_name(fact: TopologyDescribed) -> str:
    """INCARNATION/EPOCH/HASH."""
    return f"{fact.incarnation}/{fact.epoch}/{_digits(fact)[:HASH_DIGITS]}"


def _digits(fact: TopologyDescribed) -> str:
    return fact.hash.removeprefix("sha256:")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersion:
    """A record of the topic; `is_current`: it is what members pushed last, and the group was not deleted since.

    While no member has pushed, the last partial description is current.
    """

    fact: TopologyDescribed
    is_current: bool = False
    deleted_at: int | None = None

    @property
    def is_partial(self) -> bool:
        """Whether it only says what a member sends to be assigned tasks."""
        return self.fact.provenance == ASSIGNMENT

    @property
    def digits(self) -> str:
        return _digits(self.fact)

    @property
    def name(self) -> str:
        return version_name(self.fact)


class VersionLog:
    """The versions of one group, from the records of the topic in their order."""

    def __init__(self, group: str, *, max_bytes: int) -> None:
        self._group = group
        self._max_bytes = max_bytes
        self._versions: dict[bytes, KeptVersion] = {}
        self._current: bytes | None = None
        self._is_pushed = False  # the current one

    def clear(self) -> None:
        self._versions.clear()
        self._current, self._is_pushed = None, False

    def take(self, record: ConsumedRecord) -> None:
        """A record that is not about the group, or that cannot be read, is passed over."""
        key = record.key or b""
        if not self._is_of_group(key):
            return
        if record.value is None:  # the version is not kept any longer
            self._versions.pop(key, None)
            return
        match decode(SUFFIX, key, record.value, max_bytes=self._max_bytes):
            case TopologyDescribed() as fact:
                self._versions.pop(key, None)
                self._versions[key] = KeptVersion(fact=fact)
                if fact.provenance == PUSHED or (fact.provenance == ASSIGNMENT and not self._is_pushed):
                    self._current, self._is_pushed = key, fact.provenance == PUSHED
            case TopologyDeleted() as fact:
                self._current, self._is_pushed = None, False
                for name, version in self._versions.items():
                    if version.fact.incarnation == fact.incarnation:
                        self._versions[name] = replace(version, deleted_at=fact.at)

    def _is_of_group(self, key: bytes) -> bool:
        try:
            parts = json.loads(key)
        except (ValueError, RecursionError):
            return False
        return isinstance(parts, list) and bool(parts) and parts[0] == self._group

    def versions(self) -> tuple[KeptVersion, ...]:
        """In the order in which they were written, the oldest first."""
        return tuple(
            replace(version, is_current=True) if key == self._current else version
            for key, version in self._versions.items()
        )


async def read_versions(config: Config, group: str, *, timeout_s: float = _READ_TIMEOUT_S) -> tuple[KeptVersion, ...]:
    """Read the topic with the service account of a gateway; `ClusterError` if that takes too long."""
    clients = clients_of(config)
    try:
        await clients.open()
        return await _read_versions(clients, config, group, timeout_s)
    finally:
        await clients.close()


async def _read_versions(
    clients: SharedClients, config: Config, group: str, timeout_s: float
) -> tuple[KeptVersion, ...]:
    topic = config.facts.prefix + SUFFIX
    await identify(clients.admin, topic, timeout_s=5.0)
    log = VersionLog(group, max_bytes=message_limit(config.topologies.max_bytes))

    def take(records: Sequence[ConsumedRecord] | None) -> None:
        if records is None:
            log.clear()
        for record in records or ():
            log.take(record)

    reader: FactReader[Sequence[ConsumedRecord] | None] = FactReader(
        clients.bulk_consumer, topic=topic, digest=lambda records: records, forget=lambda _: None, take=take
    )
    reader.start()
    try:
        async with asyncio.timeout(timeout_s):
            await reader.replayed.wait()
    except TimeoutError:
        raise ClusterError(f"{topic} was not read to its end in {timeout_s:g} s: {reader.problem}") from None
    finally:
        await reader.close()
    return log.versions()


def select_version(versions: Sequence[KeptVersion], wanted: str) -> KeptVersion:
    """The version with this name, or with a hash that begins so; `latest`, or `previous` for the other content before.

    `latest` is the current one where there is one. Of versions with the same content the newest counts.
    """
    if not versions:
        raise HeadgateError("no version of this group is kept")
    latest = next((one for one in versions if one.is_current), versions[-1])
    if wanted in {"", LATEST}:
        return latest
    if wanted == PREVIOUS:
        # A partial description differs from a pushed one of the same topology, so the two are not compared.
        earlier = (one for one in versions[: versions.index(latest)] if one.is_partial == latest.is_partial)
        before = [one for one in earlier if one.fact.hash != latest.fact.hash]
        if not before:
            raise HeadgateError("there is no version before the latest one")
        return before[-1]
    found = [one for one in versions if _is_named(one, wanted)]
    if not found:
        raise HeadgateError("there is no such version; `headgate topology versions` lists those that are kept")
    if len({one.fact.hash for one in found}) > 1:
        names = ", ".join(one.name for one in found[:_MOST_LISTED])
        raise HeadgateError(f"several versions are called so: {names}")
    return found[-1]


def _is_named(version: KeptVersion, wanted: str) -> bool:
    incarnation, first, rest = wanted.partition("/")
    if not first:
        return version.digits.startswith(wanted.removeprefix("sha256:"))
    epoch, _, digits = rest.partition("/")
    return (version.fact.incarnation, str(version.fact.epoch)) == (incarnation, epoch) and version.digits.startswith(
        digits
    )
