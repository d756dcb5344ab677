"""Between facts and events: what is written comes back as what it meant."""

from headgate.facts import TopologyDeleted, decode, encode
from headgate.facts.decisions import TopologyEpochsSet
from headgate.facts.topology import TopologyDescribed
from headgate.plugin.conformance import pushed
from headgate.topologies.fact_mapping import described_fact, epochs_fact, event_of
from headgate.topologies.model.group_events import DeletionRead, DescriptionRead, EpochsRead, WriteEpochs
from headgate.topologies.model.group_life import Epochs, Held


def test_epochs_that_are_written_are_read_as_they_were() -> None:
    epochs = Epochs(incarnation="9f2c", stored_epoch=-2, failed_epoch=3)
    fact = decode(*encode(epochs_fact(WriteEpochs("g", epochs), at=1)))
    assert isinstance(fact, TopologyEpochsSet)
    assert event_of(fact, own=True) == ("g", EpochsRead(epochs=epochs, own=True))


def test_a_description_that_is_written_is_read_as_held() -> None:
    one = pushed("g", epoch=2)
    fact = decode(*encode(described_fact(one, at=1)))
    assert isinstance(fact, TopologyDescribed)
    held = Held(incarnation="9f2c", epoch=2, hash=one.hash, member="m-1")
    assert event_of(fact, own=False) == ("g", DescriptionRead(held=held))


def test_a_description_that_nobody_pushed_is_for_the_map() -> None:
    fact = described_fact(pushed("g"), at=1)
    pasted = TopologyDescribed(
        at=1,
        group="g",
        incarnation="9f2c",
        epoch=0,
        hash=fact.hash,
        provenance="pasted",
        member=None,
        process=None,
        description=fact.description,
    )
    assert event_of(pasted, own=False) is None


def test_a_deletion_ends_its_life() -> None:
    assert event_of(TopologyDeleted(at=1, group="g", incarnation="9f2c"), own=False) == (
        "g",
        DeletionRead(incarnation="9f2c"),
    )
