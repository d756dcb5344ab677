"""Pasted versions: descriptions that no member pushed, for instance from a build (`headgate topology publish`).

The request is a StreamsGroupTopologyDescriptionUpdate without a member, and with the tagged field `PASTED_TAG`, which
Kafka's own clients never send. The broker has proven READ on the group, as for a push. The group need not exist.

Invariant: a pasted version is a record of `headgate.topologies` and nothing else. It is in no store, no heartbeat and
no describe sees it, and it changes neither the state of a group nor its back-off.
"""

import json
from dataclasses import dataclass
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.facts import TopologyDescribed
from headgate.facts.topology import Description, content_hash
from headgate.plugin import PermanentFailure, TransientFailure
from headgate.topologies.kept_versions import version_name
from headgate.topologies.model.push_gate import Push, PushRejection
from headgate.topologies.model.push_rate import PushRate
from headgate.topologies.service import MAX_NAME, TopologyService
from headgate.topologies.wire_descriptions import PASTED, PASTED_TAG, Refusal, from_wire
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.streams import StreamsGroupTopologyDescriptionUpdateRequest

log = structlog.get_logger()

_UPDATE_FAILED: Final = ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Paste:
    """A request to keep a version, and its sender; `by` is None where the wire does not show the principal."""

    push: Push
    description: Description
    hash: str
    by: str | None
    client_id: str | None


def response_tag(version: str | None = None) -> tuple[int, bytes]:
    """The tagged field of the response, by which a client knows that a gateway has handled the request."""
    document = {} if version is None else {"version": version}
    return PASTED_TAG, json.dumps(document).encode()


def read_paste(
    request: StreamsGroupTopologyDescriptionUpdateRequest, push: Push, *, by: str | None, client_id: str | None
) -> Paste | PushRejection | None:
    """The paste in a request without a member; None when the tag is missing."""
    tag = dict(request.unknown_tags).get(PASTED_TAG)
    if tag is None:
        return None
    if tag != PASTED:
        return PushRejection(ErrorCode.INVALID_REQUEST, f"Tagged field {PASTED_TAG} must be 'pasted'.")
    if push.topology_epoch < 0:
        return PushRejection(ErrorCode.INVALID_REQUEST, "TopologyEpoch can't be negative.")
    description = from_wire(request.topology_description)
    if isinstance(description, Refusal):
        return PushRejection(ErrorCode.INVALID_REQUEST, description.text)
    shown_id = None if client_id is None else client_id[:MAX_NAME]
    return Paste(push=push, description=description, hash=content_hash(description), by=by, client_id=shown_id)


class PastedVersions:
    """Keeps pasted versions, at a rate of their own: pastes leave the pushes of members alone."""

    def __init__(self, service: TopologyService, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._rate = PushRate()
        self._throttle = LogThrottle(clock.monotonic)

    async def keep(self, paste: Paste) -> str | PushRejection:
        """The name of the version when it was written and read back, or why it was not."""
        group, service = paste.push.group, self._service
        if not group:
            return PushRejection(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
        if not service.has_store or not service.is_selected(group):
            text = "The gateway stores no descriptions of this group: see topologies.store and topologies.groups."
            return PushRejection(ErrorCode.UNSUPPORTED_VERSION, text)
        resources = service.resources
        if resources is None:
            return PushRejection(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Topology descriptions are not available yet.")
        if resources.keep_version is None:
            text = "Versions are kept only with topologies.store = 'kafka:'."
            return PushRejection(ErrorCode.UNSUPPORTED_VERSION, text)
        fact = self._fact(paste)
        try:
            async with service.lock(group):
                if not self._rate.take(group, self._clock.monotonic()):
                    text = "Versions of this group are published too often. Try again later."
                    return PushRejection(_UPDATE_FAILED, text)
                await resources.keep_version(fact)
        except (ClusterError, PermanentFailure, TransientFailure) as failure:
            if self._throttle.allows("not kept", group):
                log.warning("pasted topology version not kept", group=group, reason=str(failure))
            return PushRejection(_UPDATE_FAILED, str(failure))
        name = version_name(fact)
        if self._throttle.allows("kept", group):
            log.info("pasted topology version kept", group=group, version=name, by=paste.by)
        return name

    def _fact(self, paste: Paste) -> TopologyDescribed:
        return TopologyDescribed(
            at=self._clock.epoch_ms(),
            group=paste.push.group,
            incarnation=self._service.groups.state(paste.push.group).incarnation,
            epoch=paste.push.topology_epoch,
            hash=paste.hash,
            provenance="pasted",
            member=None,
            process=None,
            by=paste.by,
            client_id=paste.client_id,
            description=paste.description,
        )
