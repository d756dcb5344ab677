"""Columns that several tables have, so that they are the same in all of them and tables can be joined by them."""

from headgate.tables.definition import CLUSTER_ID, flag, small, text, whole

CLUSTER = text(CLUSTER_ID, "the Kafka cluster that the row is about")
APP = text("app_id", "the application: a Streams group, or the name of a Spark query")

# The version of a topology: one life of the group, its epoch, and what was described. With APP in front of them.
VERSION = (
    text("incarnation", "one life of the group"),
    small("epoch", "the topology epoch within it"),
    text("hash", "the content hash of the description"),
    text("provenance", "where the description comes from: pushed, assignment, pasted or spark"),
)
VERSION_KEY = (CLUSTER_ID, "app_id", *(field.name for field in VERSION))

# Validity is in offset order: clocks of writers differ, offsets do not.
VALIDITY = (
    whole("valid_from", "the offset in the facts' topic from which the row holds"),
    whole("valid_to", "the offset from which it does not hold any more; null while it holds", null=True),
    whole("at", "when it began to hold, in epoch milliseconds by the writer's clock"),
    whole("ended_at", "when it ended, in epoch milliseconds; null while it holds", null=True),
)
HISTORIC = flag("is_historic", "the topic does not retain the row's fact any more: a rebuild cannot make it again")

# Who told a fact: with these a copy is recognised.
ORIGIN = (
    text("writer", "the worker that told it; empty when it did not say"),
    text("boot", "one life of that process; when it did not say, topic/partition of the fact"),
    whole("seq", "counted within that; when it did not say, the offset of the fact"),
)
ORIGIN_KEY = (CLUSTER_ID, *(field.name for field in ORIGIN))
