"""Columns of tables in several modules of definitions, declared once, so that these tables can be joined."""

from headgate.tables.table import CLUSTER_ID, flag, text

CLUSTER = text(CLUSTER_ID, "the Kafka cluster that the row is about")
APP = text("app_id", "the application: a Streams group, or the name of a Spark query")
HISTORIC = flag("is_historic", "the topic no longer retains the row's fact: a rebuild cannot make the row again")
