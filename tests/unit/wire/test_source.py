"""Generated functions see what was bound to them, and their tracebacks lead back to fields."""

import pytest

from headgate.wire.source import Source


def test_a_bound_object_has_one_name_however_often_it_is_bound() -> None:
    source = Source("<test>", "number")
    table = [10, 20]
    assert source.bind(table, "table") == source.bind(table, "other")
    source.line(f"return {source.bind(table, 'table')}[number]")
    assert source.build().function(1) == 20


def test_plain_constants_stand_in_place_and_others_by_name() -> None:
    source = Source("<test>", "nothing")
    assert [source.constant(value) for value in (None, True, -1, "a'b")] == ["None", "True", "-1", '"a\'b"']
    assert source.constant(b"x") == source.constant(b"x")


def test_local_names_are_never_given_twice() -> None:
    source = Source("<test>", "nothing")
    assert len({source.fresh("v") for _ in range(20)}) == 20


def test_the_line_that_raised_leads_to_its_field() -> None:
    source = Source("<test of paths>", "data, at")
    source.line("data[0]")
    with source.at("groups"), source.block("for each in at:"), source.at("members"):
        source.line("data[each]")
    source.line("return data")
    generated = source.build()
    for data, at, path in ((b"", (), ""), (b"x", (0, 1), "groups.members")):
        with pytest.raises(IndexError) as caught:
            generated.function(data, at)
        assert generated.path_at(caught.value.__traceback__) == path
    assert not generated.path_at(None)
