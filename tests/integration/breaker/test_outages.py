"""Ways in which a dead-letter topic fails, and a primary stream that does not notice (KIP-1316, risk 2).

Some seconds of two kinds. `make soak` has all five for 45 s, without and with kills: topic deleted, records too large,
right revoked, broker stopped, too few replicas (`tests/soak/test_share_outages.py`). Brokers that are stopped are in
`test_three_brokers.py`.
Bounds are wide, because a busy machine must not decide: before there was a spool every commit waited 10 s.
"""

from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.outage_kinds import deleted, guarded, logged_in, revoked
from tests.support.share_consumers import ShareJvm
from tests.support.share_outages import OutageLimits, endure

WIDE = OutageLimits(commit_s=8.0, commit_ratio=3.0, throughput=0.2)
DEAD_LETTERS_S = 40.0


def test_outages_of_a_topic_are_not_felt_and_lose_no_dead_letter(
    cluster: Cluster, java_431: ShareJvm, java_440: ShareJvm, tmp_path: Path
) -> None:
    with guarded(cluster, tmp_path) as scene:
        found = endure(
            scene,
            [deleted(scene), revoked(scene)],
            [java_431, java_440],
            healthy_s=4.0,
            outage_s=8.0,
            rate=200,
            addresses=[logged_in(scene)],
            limits=WIDE,
            dead_letters_s=DEAD_LETTERS_S,
        )
    print(*found, sep="\n")
    assert [one.problems for one in found] == [(), ()]
