"""Lags of groups: the facts of `lags`, one record for each group and topic, with lists of its partitions.

The lists are parallel: the first item of each is about the first partition, and so on. A million partitions as objects
with named fields would take twice the bytes, and could not be read by Spark's own functions (`exact_form.py`).
"""

from typing import Annotated, Literal

from headgate.facts.codec import Fact, fact
from headgate.facts.json_form import INT32_MAX, Whole

GroupKind = Literal["classic", "consumer", "share", "streams"]
Partition = Annotated[int, Whole(0, INT32_MAX)]
# A record with more would keep the event loop that encodes it busy for longer than a millisecond.
MOST_PARTITIONS = 1000


@fact(topic="lags", key=("group", "topic"))
class GroupLagsObserved(Fact):
    """The lag of a group behind the ends of a topic's partitions; several records when there are many partitions."""

    group: Annotated[str, "the group"]
    topic: Annotated[str, "the topic"]
    kind: Annotated[GroupKind, "the type of the group"]
    topic_id: Annotated[str | None, "the id of the topic; null where it is unknown"]
    partitions: Annotated[
        tuple[Partition, ...], "the partitions with a committed offset; of a share group, all it reads"
    ]
    committed: Annotated[
        tuple[int | None, ...],
        "the committed offset of each; of a share group, its start offset, null before there is one",
    ]
    ends: Annotated[tuple[int | None, ...], "the end offset of each; null where its leader did not tell"]
    lags: Annotated[
        tuple[int | None, ...],
        "how many records each is behind; of a share group, as the broker counts them; null where it is unknown",
    ]
