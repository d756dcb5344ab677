"""For PySpark jobs: describe streaming queries as topologies, and write them to Headgate's topic `topologies`.

    from headgate.spark import Output, TopologyFacts, describe, listen

    listen(spark, TopologyFacts({"bootstrap.servers": "kafka-1:9092"}))

These names are stable; `docs/pipeline.md` documents them. A job that imports this needs PySpark and Headgate's base
dependencies, neither the gateway nor the tables.
"""

from headgate.spark.listener import (
    DescribedQuery,
    NotDescribedError,
    TopologyFacts,
    TopologyListener,
    describe,
    listen,
)
from headgate.spark.plan import Output

__all__ = [
    "DescribedQuery",
    "NotDescribedError",
    "Output",
    "TopologyFacts",
    "TopologyListener",
    "describe",
    "listen",
]
