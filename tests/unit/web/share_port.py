"""The state of share groups without Kafka: what a test sets."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.facts import BreakerTripped, DlqRegistered, GroupConfigSet, GroupPaused
from headgate.share_groups.model.group_configs import BREAKER_ENABLE, DLQ_TOPIC
from headgate.share_groups.model.group_state import ShareGroupFact, ShareGroupState, ShareStates
from headgate.web.share_states import OnChange
from tests.unit.lineage.shop import TWO


@dataclass
class FakeShares:
    """A `SharePort`."""

    problem: str | None = None
    changes: int = 0
    states: ShareStates = field(default_factory=ShareStates)
    on_change: OnChange | None = None

    def apply(self, *facts: ShareGroupFact) -> None:
        self.changes += 1
        for fact in facts:
            self.states.apply(fact)
        if self.on_change is not None:
            self.on_change({fact.group for fact in facts})

    def groups(self) -> Iterable[str]:
        return self.states.groups()

    def of(self, group: str) -> ShareGroupState:
        return self.states.of(group)

    def groups_of_topic(self, topic: str) -> tuple[str, ...]:
        return self.states.registered_groups(topic)

    @classmethod
    def of_the_shop(cls) -> "FakeShares":
        """The breaker paused billing, an operator paused refunds, and both share a dead-letter topic."""
        found = cls()
        for group in ("billing", "refunds"):
            found.apply(
                GroupConfigSet(group=group, name=DLQ_TOPIC, value="dlq.orders", by="User:ops", at=TWO),
                GroupConfigSet(group=group, name=BREAKER_ENABLE, value="true", by="User:ops", at=TWO),
                DlqRegistered(topic="dlq.orders", group=group, at=TWO),
            )
        found.apply(
            BreakerTripped(
                group="billing",
                generation=4,
                resume_at=TWO + 60_000,
                dlq_written=25,
                delivered=75,
                threshold_percent=20,
                window_ms=60_000,
                at=TWO - 300_000,
            ),
            GroupPaused(group="refunds", reason="maintenance <b>now</b>", by="User:ops", at=TWO),
        )
        return found
