"""What stands for the id of a topic in `dead_letters` when a dead letter names only the topic, as those of Connect do.

Without the name in the key, records of two topics with the same partition and offset would be one. Rows of earlier
releases have an empty text instead. Neither is ever an id in Kafka, whose ids have no colon.
"""

from typing import Final

NAMED: Final = "name:"


def named_topic(topic: str) -> str:
    """What stands for the id of a topic of which only the name is known."""
    return NAMED + topic


def is_topic_id(topic_id: str) -> bool:
    """Whether this is the id of a topic, and does not stand for one."""
    return topic_id != "" and not topic_id.startswith(NAMED)


def replayed_topic_id(topic_id: str) -> str:
    """The id as plans and replays have it, where the name of the topic stands beside it: empty when it is not known."""
    return topic_id if is_topic_id(topic_id) else ""
