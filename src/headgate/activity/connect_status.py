"""What the REST interface needs of a Connect cluster's active topics (KIP-558)."""

from collections.abc import Iterator
from typing import Protocol


class ConnectTopics(Protocol):
    """The map from connectors to topics, as it can be read."""

    def of(self, connector: str) -> tuple[str, ...]: ...

    def connectors(self) -> Iterator[str]: ...


class ConnectStatus(Protocol):
    """One cluster. Before `is_ready` nothing is known; `problem` says what is missing, or may be old."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def problem(self) -> str | None: ...

    @property
    def topics(self) -> ConnectTopics: ...

    async def reset(self, connector: str) -> tuple[str, ...]:
        """The topics that were taken away; `ClusterError` when not all of them were."""


class WireStatus(Protocol):
    """What was seen on the wire; the same words."""

    @property
    def problem(self) -> str | None: ...

    @property
    def topics(self) -> ConnectTopics: ...
