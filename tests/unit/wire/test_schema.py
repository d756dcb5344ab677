"""The notation: ranges of versions, and classes that cannot be changed after they are made."""

import dataclasses
import gc
from typing import Any

import pytest

from headgate.wire.messages.groups import HeartbeatRequest
from headgate.wire.messages.streams import Endpoint
from headgate.wire.schema import Struct, versions_of


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("none", [], [0, 1]), ("4", [4], [3, 5]), ("0-12", [0, 12], [13]), ("3+", [3, 32767], [2, 32768])],
)
def test_ranges_of_versions(text: str, inside: list[int], outside: list[int]) -> None:
    assert all(version in versions_of(text) for version in inside)
    assert not any(version in versions_of(text) for version in outside)


@pytest.mark.parametrize("text", ["", "+", "3-", "-3", "a", "1,2"])
def test_another_text_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match="not a range of versions"):
        versions_of(text)


def test_messages_are_frozen_slotted_and_made_by_name() -> None:
    message = HeartbeatRequest(group_id="g")
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.group_id = "h"  # type: ignore[misc]
    assert not hasattr(message, "__dict__")
    by_position: Any = HeartbeatRequest
    with pytest.raises(TypeError):
        by_position("g")
    assert dataclasses.replace(message, member_id="m") == HeartbeatRequest(group_id="g", member_id="m")
    assert hash(Endpoint(host="h")) == hash(Endpoint(host="h"))


def test_nothing_keeps_the_class_that_a_message_had_before_its_slots() -> None:
    gc.collect()
    assert [each.__name__ for each in Struct.__subclasses__()].count(Endpoint.__name__) == 1


def test_a_message_prints_as_the_call_that_makes_it() -> None:
    message = HeartbeatRequest(group_id="g", generation_id=3)
    assert repr(message) == "HeartbeatRequest(group_id='g', generation_id=3)"
