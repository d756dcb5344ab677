"""Where topology descriptions are kept: the interface of stores, and what a store's answer means (KIP-1331).

A store is a class that is named in `[topologies] store = "plugin:package.module:Class"`, made without arguments, then
configured once, used by one worker process, then closed. It is KIP-1331's StreamsGroupTopologyDescriptionPlugin with
Python's manners: methods are coroutines, failures are exceptions.

The contract, which `headgate.plugin.conformance` holds a store to:

- `set` keeps the description of (group, epoch); what was kept of the group before may go. It is idempotent: the same
  call again, and a call whose answer was lost, change nothing. It may be called while another `set`, `get` or `delete`
  of the same group runs; then any order of them is right.
- `get` gives exactly what was set for (group, epoch), or None when the store has nothing for it, be it that nothing was
  set, that it was deleted, or that the data was lost. None is shown as NOT_STORED. An exception is shown as ERROR.
- `delete` removes everything of the group, and is idempotent too: nothing there is success. Any exception keeps the
  group from being deleted, and its text is shown to whoever asked.
- `PermanentFailure` from `set`: this description will never be taken (too large, refused). The group is not asked again
  at this epoch. Its text goes to the client, so no secrets in it.
- `TransientFailure` or any other exception from `set`: asked again after a back-off of 30 s to 1 h. Its text goes to
  the client as well.
- No method raises before it is awaited or returns something that cannot be awaited: that is a permanent failure of
  `set` with a text of ours, since nobody knows what such an exception holds.
- No method blocks the event loop: slow work belongs on a thread. Calls that take longer than `call_timeout_ms` are
  cancelled and count as transient failures; what they did meanwhile is up to the store.
- Names are whatever clients call themselves: empty, with line ends, not even UTF-8 (lone surrogates in a `str`).
- Keep bounded what you keep in memory; it is the gateway's.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headgate.base.errors import HeadgateError
from headgate.facts.topology import Description


class PermanentFailure(HeadgateError):  # noqa: N818 - the KIP's word
    """The store will never take this description at this epoch."""


class TransientFailure(HeadgateError):  # noqa: N818 - the KIP's word
    """The store cannot do it now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedTopology:
    """What a member pushed. (incarnation, epoch, hash) is its version; `incarnation` is one life of the group.

    `process` is None when the member joined before this gateway was started.
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
    """What a store is told: where it may keep files, the largest push in bytes on the wire, and its target.

    `target` is what stands behind the scheme in `[topologies] store`; `environment` is for secrets, which do not belong
    into the configuration file.
    """

    folder: Path
    max_bytes: int
    target: str = ""
    environment: Mapping[str, str]


class TopologyStore(Protocol):
    """See the module for the contract."""

    def configure(self, settings: StoreSettings) -> Awaitable[None]:
        """Open it; `UsageError` when the settings are wrong. Called once, before everything else."""

    def set(self, pushed: PushedTopology) -> Awaitable[None]: ...

    def get(self, group: str, epoch: int) -> Awaitable[Description | None]: ...

    def delete(self, group: str) -> Awaitable[None]: ...

    def close(self) -> Awaitable[None]:
        """Let go of everything; also after a `configure` that failed. Twice is as good as once."""
