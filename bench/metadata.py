"""What rewriting a large Metadata answer costs: 1,000 topics of 12 partitions in a cluster of 12 brokers.

This is the one rewriting whose answer grows with the cluster. It is called as the gateway calls it: the whole body
in, the whole body out.
"""

from bench.codec import microseconds
from headgate.base.ids import NodeId
from headgate.wire import splice
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic

TOPICS, PARTITIONS, BROKERS, VERSION = 1000, 12, 12, 13
NAME = f"rewrite the brokers of a Metadata answer, {TOPICS} topics x {PARTITIONS}"
_CALLS = 50


def large_answer() -> bytes:
    brokers = tuple(
        MetadataBroker(node_id=node, host=f"broker-{node}.kafka.example.org", port=9092, rack=f"rack-{node % 3}")
        for node in range(BROKERS)
    )
    partitions = tuple(
        MetadataPartition(
            partition_index=index,
            leader_id=index % BROKERS,
            leader_epoch=3,
            replica_nodes=tuple((index + copy) % BROKERS for copy in range(3)),
            isr_nodes=tuple((index + copy) % BROKERS for copy in range(3)),
        )
        for index in range(PARTITIONS)
    )
    topics = tuple(
        MetadataTopic(name=f"team.domain.topic-{number:04}", topic_id=number.to_bytes(16), partitions=partitions)
        for number in range(TOPICS)
    )
    answer = MetadataResponse(brokers=brokers, cluster_id="4rKAZ8yfT0ib0OmZkvM4gQ", controller_id=0, topics=topics)
    return encode(answer, VERSION)


def main() -> dict[str, float]:
    """Print the figure and give the median by name, in microseconds."""
    body = large_answer()
    addresses = [splice.EncodedAddress.of("kafka.example.org", 9093 + node) for node in range(BROKERS)]

    def lookup(node: NodeId) -> splice.EncodedAddress:
        return addresses[node]

    best, median = microseconds(lambda: splice.finish(splice.metadata(body, VERSION, lookup)), _CALLS)
    print(f"{NAME}: {len(body)} bytes, best {best:.1f} us, median {median:.1f} us")
    return {NAME: median}


if __name__ == "__main__":
    main()
