"""What the calls about configs, descriptions and membership need of the share groups of this worker.

One rule: everything here is asked for a group by its name, and answered from what was read back from the topics; only
the three that are awaited change anything.
"""

from collections.abc import Mapping
from typing import Protocol

from headgate.share_groups.model.breaker_status import BreakerStatus
from headgate.share_groups.model.group_configs import ConfigRules
from headgate.share_groups.model.group_state import ShareStates


class Steering(Protocol):
    """Who steers them, as far as these calls know it."""

    @property
    def states(self) -> ShareStates: ...

    @property
    def is_ready(self) -> bool:
        """Whether the topics were read to their ends: before that nothing is known of any group."""

    @property
    def rules(self) -> ConfigRules: ...

    def selects(self, group: str) -> bool:
        """Whether the operator wants the group to be ours at all."""

    def minds(self, group: str) -> bool:
        """Whether anything of ours is set, paused or tripped."""

    def status(self, group: str) -> BreakerStatus:
        """The object of `share-groups --circuit-breaker`."""

    def conflict(self, group: str) -> str | None:
        """Why the group's members must be refused."""

    async def set_configs(self, group: str, changes: Mapping[str, str | None], by: str) -> None:
        """Written and read back; None is the default again. `ClusterError` when it is not known to be."""

    async def pause(self, group: str, reason: str, by: str) -> None: ...

    async def resume(self, group: str, reason: str, by: str) -> None: ...
