"""Facts of Headgate's topics, read to the end of the topic by a plain consumer."""

from collections.abc import Mapping
from typing import Any

from headgate.facts import EventHappened, MemberTasksEnded, MemberTasksObserved, decode
from tests.support.share_truth import Reading


def read_facts(config: Mapping[str, Any], prefix: str, suffix: str) -> list[object]:
    """Everything in a topic of facts, in the order of each partition."""
    reading = Reading(config, prefix + suffix)
    try:
        return [decode(suffix, key, value) for _, key, value, _ in reading.to_the_end()]
    finally:
        reading.close()


def member_tasks(config: Mapping[str, Any], prefix: str, group: str) -> dict[str, MemberTasksObserved]:
    """The last record of each member that is in the group."""
    found = (
        fact for fact in read_facts(config, prefix, "tasks") if isinstance(fact, MemberTasksObserved | MemberTasksEnded)
    )
    last = {fact.member: fact for fact in found if fact.group == group}
    return {member: fact for member, fact in last.items() if isinstance(fact, MemberTasksObserved)}


def mismatch_details(config: Mapping[str, Any], prefix: str, group: str) -> list[dict[str, Any]]:
    """What the `topology_mismatch` events of a group say."""
    found = (fact for fact in read_facts(config, prefix, "events") if isinstance(fact, EventHappened))
    return [fact.detail.value() for fact in found if (fact.event, fact.subject) == ("topology_mismatch", group)]
