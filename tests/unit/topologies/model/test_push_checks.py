"""What refuses a push before a store sees it, in the broker's order and words."""

from headgate.topologies.model.push_checks import Push, Refused, against_the_group, before_the_group

PUSH = Push(group="g", member="m", topology_epoch=3)


def test_a_good_push_passes() -> None:
    assert before_the_group(PUSH, store=True) is None
    assert against_the_group(PUSH, found=True, is_member=True, current_epoch=3) is None


def test_without_a_store_even_an_empty_push_is_unsupported() -> None:
    text = "The broker has no streams group topology description plugin configured."
    assert before_the_group(Push(group="", member="", topology_epoch=0), store=False) == Refused(35, text)


def test_an_empty_member_is_told_before_an_empty_group() -> None:
    both = Push(group="", member="", topology_epoch=0)
    assert before_the_group(both, store=True) == Refused(42, "MemberId can't be empty.")


def test_an_empty_group_is_invalid() -> None:
    empty = Push(group="", member="m", topology_epoch=0)
    assert before_the_group(empty, store=True) == Refused(42, "GroupId can't be empty.")


def test_a_group_that_is_not_there_is_told_before_the_member() -> None:
    refused = against_the_group(PUSH, found=False, is_member=False, current_epoch=-1)
    assert refused == Refused(69, "Group g not found.")


def test_a_stranger_is_told_before_the_epoch() -> None:
    refused = against_the_group(PUSH, found=True, is_member=False, current_epoch=0)
    assert refused == Refused(25, "Member m is not a member of group g.")


def test_another_epoch_is_invalid() -> None:
    refused = against_the_group(PUSH, found=True, is_member=True, current_epoch=4)
    assert refused == Refused(42, "Topology epoch 3 does not match the group's current topology epoch 4.")
