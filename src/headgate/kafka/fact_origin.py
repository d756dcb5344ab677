"""Where a worker's facts come from: its cluster, its name, and this life of its process.

One rule: whoever has an origin has topics to write to, because those that were absent were made first.
"""

import socket
import uuid
from collections.abc import Mapping
from typing import Any

import structlog

from headgate.config.model import Config
from headgate.kafka.topics import Origin, ensure_topics, identify

log = structlog.get_logger()


async def find_origin(config: Config, worker: int, settings: Mapping[str, Any], suffix: str) -> Origin:
    """Of facts for the topic with this suffix, which the cluster is asked about; `ClusterError` when it cannot be."""
    prefix = config.facts.prefix
    made = await ensure_topics(
        settings, prefix=prefix, max_bytes=config.topologies.max_bytes, replication=config.facts.replication
    )
    if made:
        log.info("topics created", topics=", ".join(made))
    cluster = (await identify(settings, prefix + suffix)).cluster
    name = f"{socket.gethostname()}:{config.gateway.listen.port}/{worker}"
    return Origin(cluster=cluster, writer=name, boot=uuid.uuid4().hex[:12])
