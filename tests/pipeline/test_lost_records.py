"""Topics that were created again, and records that were deleted before they were read, with real Spark and Kafka."""

import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headgate.facts import EventHappened, JsonText
from headgate.kafka.topics import quiet
from headgate.pipeline.fact_rows import GENERATION_OFFSETS
from tests.pipeline.estate import Estate
from tests.pipeline.histories import POOL, described


def create_again(estate: Estate, suffix: str) -> None:
    admin = AdminClient(quiet(estate.settings))
    topic = estate.prefix + suffix
    admin.delete_topics([topic])[topic].result(30)

    until = time.monotonic() + 30
    while True:
        try:
            estate.make_topics(suffix)
        except KafkaException:  # it is still being deleted
            assert time.monotonic() < until
            time.sleep(0.05)
        else:
            return


def happened(number: int) -> EventHappened:
    return EventHappened(
        at=number,
        subject_kind="share_group",
        subject="s",
        id=f"e{number}",
        event="paused",
        by=None,
        detail=JsonText.of({"n": number}),
    )


def versions(estate: Estate, group: str) -> list[tuple[int, int | None]]:
    """From where to where each version of the application is valid."""
    rows = [row for row in estate.rows("applications").values() if row["app_id"] == group]
    return sorted((row["valid_from"], row["valid_to"]) for row in rows)


def metric(estate: Estate, name: str) -> float:
    page = estate.health.metrics_page().decode()
    [line] = [one for one in page.splitlines() if one.startswith(f"headgate_pipeline_{name}_total{{")]
    return float(line.split()[-1])


def test_a_topic_that_was_created_again_is_read_from_its_beginning_and_comes_after_all_before(estate: Estate) -> None:
    estate.write(described("g", POOL[0], at=1), described("g", POOL[1], at=2), described("h", POOL[0], at=2))
    estate.write(happened(1))
    assert estate.run()
    create_again(estate, "topologies")
    estate.write(described("g", POOL[2], at=3))
    estate.write(happened(2))
    assert estate.run()
    first = GENERATION_OFFSETS
    assert versions(estate, "g") == [(0, 1), (1, first), (first, None)]
    assert versions(estate, "h") == [(2, None)], "nothing says that it ended"
    assert {"e1", "e2"} <= {row["event_id"] for row in estate.rows("changes").values()}
    ((table, problem),) = estate.problems()
    assert table is None
    assert f"the topic {estate.prefix}topologies was created again" in problem
    assert metric(estate, "topics_created_again") == 1
    # Now with more records than were read: Spark's own offsets would lie in the new topic.
    create_again(estate, "topologies")
    estate.write(*(described("g", POOL[number % 2], at=4 + number) for number in range(3)))
    estate.write(described("h", POOL[1], at=9))
    assert estate.run()
    second = 2 * GENERATION_OFFSETS
    later = [(first, second), (second, second + 1), (second + 1, second + 2), (second + 2, None)]
    assert versions(estate, "g")[2:] == later
    assert versions(estate, "h") == [(2, second + 3), (second + 3, None)]
    assert len(estate.problems()) == 2


def test_records_that_were_deleted_before_they_were_read_are_reported_and_the_rest_is_read(estate: Estate) -> None:
    estate.write(happened(1))
    assert estate.run()
    estate.write(happened(2), happened(3))
    estate.forget("events")
    estate.write(happened(4))
    assert estate.run()
    assert {row["event_id"] for row in estate.rows("changes").values()} == {"e1", "e4"}
    [(table, problem)] = estate.problems()
    assert table is None
    assert "were deleted before they were read: partition" in problem
    assert metric(estate, "lost_records") == 2
