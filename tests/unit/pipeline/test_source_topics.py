"""What is decided about topics that were created again, were truncated or lost records, on checkpoints of Spark."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Uuid

from headgate.base.errors import ClusterError
from headgate.kafka.topics import id_text
from headgate.pipeline.fact_rows import GENERATION_OFFSETS, ReadSettings, fact_row
from headgate.pipeline.source_topics import OffsetsReusedError, SourceTopics, batch_sizes, max_batch_size

Offsets = dict[str, dict[str, int]]


def make_checkpoint(folder: Path, *batches: Offsets, uncommitted: Offsets | None = None, name: str = "one") -> Path:
    checkpoint = folder / "facts"
    for part in ("offsets", "commits"):
        (checkpoint / part).mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": name}))
    for number, offsets in enumerate((*batches, *([] if uncommitted is None else [uncommitted]))):
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}")
    for number in range(len(batches)):
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")
    return checkpoint


def no_first(_: Mapping[str, Collection[int]]) -> Mapping[tuple[str, int], int]:
    return {}


def starts(topics: SourceTopics, partitions: Mapping[str, Collection[int]]) -> object:
    return json.loads(topics.starting_offsets(partitions))


def test_topics_that_stay_the_same_leave_the_checkpoint_alone(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, {"a": {"0": 3}})
    for _ in range(2):
        topics = SourceTopics(checkpoint)
        assert topics.reconcile({"a": "id1"}) == []
        assert topics.generations({"a": "id1"}) == {"a": 0}
        assert topics.starting_offsets({"a": [0]}) == "earliest"
        assert topics.check(1, ["a"], lambda _: {"a": "id1"}, no_first) == []
    assert checkpoint.exists()


def test_a_topic_that_was_created_again_begins_a_checkpoint_in_which_only_the_others_go_on(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, {"a": {"0": 3}, "b": {"0": 7, "1": 8}}, uncommitted={"a": {"0": 9}})
    SourceTopics(checkpoint).reconcile({"a": "id1", "b": "id2"})
    topics = SourceTopics(checkpoint)
    assert topics.reconcile({"a": "another", "b": "id2"}) == ["a"]
    assert not checkpoint.exists()
    assert topics.generations({"a": "another", "b": "id2"}) == {"a": 1, "b": 0}
    assert starts(topics, {"a": [0], "b": [0, 1, 2]}) == {"a": {"0": -2}, "b": {"0": 7, "1": 8, "2": -2}}
    again = SourceTopics(checkpoint)
    assert again.reconcile({"a": "another", "b": "id2"}) == [], "a kill before the query began"
    assert starts(again, {"b": [0]}) == {"b": {"0": 7}}
    make_checkpoint(tmp_path, {"a": {"0": 1}, "b": {"0": 9, "1": 9}}, name="two")
    begun = SourceTopics(checkpoint)
    assert begun.reconcile({"a": "another", "b": "id2"}) == []
    assert checkpoint.exists()
    assert begun.starting_offsets({"b": [0]}) == "earliest", (
        "a checkpoint that is lost from now on is read from its start"
    )
    assert begun.generations({"a": "third", "b": "id2"}) == {"a": 2, "b": 0}, "as a rebuild before the next run sees it"


def test_a_broker_that_still_has_the_old_id_does_not_make_the_new_topic_be_read_twice(tmp_path: Path) -> None:
    """The metadata of a broker may be behind; the id of a deleted topic never comes back."""
    checkpoint = make_checkpoint(tmp_path, {"a": {"0": 3}})
    SourceTopics(checkpoint).reconcile({"a": "id1"})
    assert SourceTopics(checkpoint).reconcile({"a": "id2"}) == ["a"]
    make_checkpoint(tmp_path, {"a": {"0": 1}}, uncommitted={"a": {"0": 2}}, name="two")
    topics = SourceTopics(checkpoint)
    assert topics.reconcile({"a": "id1"}) == []
    assert checkpoint.exists()
    assert topics.generations({"a": "id1"}) == {"a": 1}
    assert topics.check(1, ["a"], lambda _: {"a": "id1"}, no_first) == []
    assert topics.reconcile({"a": "id2"}) == []
    assert SourceTopics(checkpoint).reconcile({"a": "id3"}) == ["a"]


def test_a_kill_between_the_file_and_the_checkpoint_leaves_no_old_offsets(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, {"a": {"0": 3}})
    SourceTopics(checkpoint).reconcile({"a": "id1"})
    SourceTopics(checkpoint).reconcile({"a": "another"})
    make_checkpoint(tmp_path, {"a": {"0": 3}})  # as if it had not been moved away
    assert SourceTopics(checkpoint).reconcile({"a": "another"}) == []
    assert not checkpoint.exists()


def test_a_batch_is_not_written_when_a_topic_was_created_again_meanwhile(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, {"a": {"0": 3}}, uncommitted={"a": {"0": 1}})
    topics = SourceTopics(checkpoint)
    topics.reconcile({"a": "id1"})
    with pytest.raises(OffsetsReusedError, match="the topic a was created again"):
        topics.check(1, ["a"], lambda _: {"a": "another"}, no_first)
    assert topics.check(1, ["a"], lambda _: {}, no_first) == [], "it does not exist now, and there is nothing to read"


def test_a_truncated_topic_goes_on_at_its_end_in_another_generation(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, {"a": {"0": 9}, "b": {"0": 4}}, uncommitted={"a": {"0": 5}, "b": {"0": 6}})
    topics = SourceTopics(checkpoint)
    topics.reconcile({"a": "id1", "b": "id2"})
    with pytest.raises(OffsetsReusedError, match="truncated"):
        topics.check(1, ["a", "b"], lambda _: {"a": "id1", "b": "id2"}, no_first)
    after = SourceTopics(checkpoint)
    assert after.reconcile({"a": "id1", "b": "id2"}) == []
    assert not checkpoint.exists()
    assert starts(after, {"a": [0], "b": [0]}) == {"a": {"0": 5}, "b": {"0": 4}}
    assert after.generations({"a": "id1", "b": "id2"}) == {"a": 1, "b": 0}


def test_records_that_were_deleted_before_they_were_read_are_found(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, {"a": {"0": 3, "1": 5}}, uncommitted={"a": {"0": 9, "1": 9}})
    topics = SourceTopics(checkpoint)
    topics.reconcile({"a": "id1"})
    asked: list[object] = []

    def first(partitions: Mapping[str, Collection[int]]) -> Mapping[tuple[str, int], int]:
        asked.append(partitions)
        return {("a", 0): 7, ("a", 1): 5}

    [lost] = topics.check(1, ["a"], lambda _: {"a": "id1"}, first)
    assert asked == [{"a": [0, 1]}]
    assert (lost.topic, lost.partition, lost.first, lost.count) == ("a", 0, 3, 4)
    assert "partition 0, offsets 3 to 6" in lost.text
    assert topics.check(0, ["a"], lambda _: {"a": "id1"}, first) == [], "the first batch begins with what is there"


def test_a_topic_that_is_created_later_is_known_from_then_on(tmp_path: Path) -> None:
    topics = SourceTopics(make_checkpoint(tmp_path, {"a": {"0": 1}}))
    topics.reconcile({"a": "id1"})
    topics.check(1, ["a", "b"], lambda _: {"a": "id1", "b": "id2"}, no_first)
    with pytest.raises(OffsetsReusedError):
        topics.check(1, ["a", "b"], lambda _: {"a": "id1", "b": "another"}, no_first)


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "facts.topics.json").write_text("{")
    with pytest.raises(ClusterError, match="remove it"):
        SourceTopics(tmp_path / "facts")


def test_offsets_of_a_later_generation_are_higher_than_all_before() -> None:
    settings = ReadSettings(prefix="hg.", cluster="own", max_bytes={}, generations={"hg.state": 2})
    record = {"topic": "hg.state", "partition": 0, "offset": 5, "recorded_at": 1, "key": b"", "value": b""}
    assert fact_row(record, settings)["offset"] == 2 * GENERATION_OFFSETS + 5
    assert fact_row({**record, "topic": "hg.events"}, settings)["offset"] == 5


def test_the_size_of_a_batch_is_known_where_its_beginning_is(tmp_path: Path) -> None:
    first = {"a": {"0": 3, "1": 0}, "b": {"0": 5}}
    checkpoint = make_checkpoint(tmp_path, first, {"a": {"0": 7, "1": 2}, "b": {"0": 5, "1": 4}, "c": {"0": 1}})
    assert batch_sizes(checkpoint, 1) == {"a": 6}, "b has a new partition, c is a new topic"
    assert batch_sizes(checkpoint, 0) == {}
    assert batch_sizes(tmp_path / "none", 4) == {}


def test_a_batch_has_at_most_the_offsets_since_the_one_before(tmp_path: Path) -> None:
    first = {"a": {"0": 3, "1": 9}, "b": {"0": 5}}
    checkpoint = make_checkpoint(tmp_path, first, {"a": {"0": 7, "1": 2}, "b": {"0": 5, "1": 40}, "c": {"0": 100}})
    assert max_batch_size(checkpoint, 1) == 4 + 2 + 40 + 100, "a new partition and a topic created again count from 0"
    assert max_batch_size(checkpoint, 0) == 17
    assert max_batch_size(tmp_path / "none", 4) is None


def test_ids_in_the_form_of_librdkafka_are_those_of_kafka(tmp_path: Path) -> None:
    """Earlier versions kept them so: the topics were not created again."""
    checkpoint = tmp_path / "facts"
    kept = {"ids": {"t": "////////////////////+w"}, "past": {"t": ["+A"]}, "generations": {"t": 1}}
    checkpoint.with_name("facts.topics.json").write_text(json.dumps(kept))
    sources = SourceTopics(checkpoint)
    assert id_text(Uuid(-1, -5)) == "____________________-w"
    assert sources.generations({"t": "____________________-w"}) == {"t": 1}
    assert sources.generations({"t": "-A"}) == {"t": 1}
    assert sources.generations({"t": "other"}) == {"t": 2}
