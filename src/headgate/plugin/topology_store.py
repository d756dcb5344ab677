"""The contract of topology stores, for authors of `[topologies] store = "plugin:package.module:Class"` (KIP-1331).

A store is created without arguments, configured once, used by one worker process, then closed. It is KIP-1331's
StreamsGroupTopologyDescriptionPlugin in Python: methods are coroutines, failures are exceptions.

The contract, which `headgate.plugin.conformance` tests:

- `set` stores the description of (group, epoch); an earlier description of the group may be dropped. It is idempotent:
  the same call again, for instance after a lost response, changes nothing. It may be called while another `set`, `get`
  or `delete` of the same group runs; then any order of them is right.
- `get` returns exactly the description that was set for (group, epoch), or None when the store does not have it: never
  set, deleted, or lost. None is shown as NOT_STORED, an exception as ERROR.
- `delete` removes all descriptions of the group, and is idempotent too: nothing to delete is success. An exception
  keeps the group from being deleted, and its text is shown to the client.
- `PermanentFailure` from `set`: the store will never accept this description (too large, not allowed). The group is not
  solicited again at this epoch. The text goes to the client, so it must hold no secrets.
- `TransientFailure` or any other exception from `set`: the group is solicited again after a back-off of 30 s to 1 h.
  The text goes to the client as well.
- No method raises before it is awaited or returns something that cannot be awaited. In `set` that is a permanent
  failure with a generic text, since the exception may hold anything.
- No method blocks the event loop: slow work belongs on a thread. A call that takes longer than `call_timeout_ms` is
  cancelled and counts as a transient failure; whether it took effect is up to the store.
- Group names are what clients send: empty, with line ends, not even UTF-8 (lone surrogates in a `str`).
- Memory is bounded; it is the gateway's.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headgate.base.errors import HeadgateError
from headgate.facts.json_form import MisfitError, dumps, loads
from headgate.facts.topology import DESCRIPTION, Description, content_hash


class PermanentFailure(HeadgateError):  # noqa: N818 - the KIP's word
    """The store will never accept this description at this epoch."""


class TransientFailure(HeadgateError):  # noqa: N818 - the KIP's word
    """The store cannot do it now; the group is solicited again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedTopology:
    """A pushed description. (incarnation, epoch, hash) is its version.

    A group that is deleted and created again has another incarnation. `process` is the member's process id, None when
    the member joined before this gateway was started.
    """

    group: str
    epoch: int
    description: Description
    incarnation: str
    hash: str
    member: str
    process: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The settings of a store: a folder for its files, and the largest push in bytes on the wire.

    `target` is the part of `[topologies] store` after the scheme, and `plugin` the table `[topologies.plugin]`, which
    the store checks in `configure`; `environment` is for secrets, which do not belong in the configuration file.
    """

    folder: Path
    max_bytes: int
    target: str = ""
    environment: Mapping[str, str]
    plugin: Mapping[str, str | int | float | bool] = field(default_factory=dict)


class TopologyStore(Protocol):
    """See the module for the contract."""

    def configure(self, settings: StoreSettings) -> Awaitable[None]:
        """Open the store; `UsageError` when the settings are wrong. Called once, before everything else."""

    def set(self, pushed: PushedTopology) -> Awaitable[None]: ...

    def get(self, group: str, epoch: int) -> Awaitable[Description | None]: ...

    def delete(self, group: str) -> Awaitable[None]: ...

    def close(self) -> Awaitable[None]:
        """Release everything; also called after a failed `configure`, and possibly twice."""


def to_bytes(description: Description) -> bytes:
    """The description in the JSON form of `docs/facts.md`, for stores that keep bytes."""
    return dumps(DESCRIPTION.write(description))


def from_bytes(data: bytes) -> Description:
    """The description; `TransientFailure` when the bytes are none, which a describe shows as ERROR, not NOT_STORED."""
    try:
        description = DESCRIPTION.read(loads(data), "description")
    except MisfitError as misfit:
        raise TransientFailure(f"the stored bytes are no topology description: {misfit}") from None
    assert isinstance(description, Description)
    return description


def check_hash(description: Description, expected: str) -> Description:
    """The description, if it has the hash that was stored with it; `TransientFailure` when the storage lost bits."""
    if content_hash(description) != expected:
        raise TransientFailure("the stored description is not the pushed one: its content hash differs")
    return description
