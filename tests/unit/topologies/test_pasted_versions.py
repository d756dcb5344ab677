"""`headgate topology publish` at the gateway: the right is proven, the version is kept, and nothing else changes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import ClusterError
from headgate.facts import TopologyDescribed
from headgate.plugin import TransientFailure
from headgate.proxy.principals import Principals
from headgate.topologies.model.push_rate import AT_ONCE
from headgate.topologies.wire_descriptions import PASTED, PASTED_TAG
from headgate.wire.messages.streams import StreamsGroupTopologyDescriptionUpdateRequest
from tests.support.clock import FakeClock
from tests.unit.topologies.scene import DENIED, HEARTBEAT, NOT_FOUND, UNKNOWN_MEMBER, Scene, allow, pushed, scene
from tests.unit.topologies.test_record_removal import deletion, keys, version
from tests.unit.topologies.topic_store import START_MS, FakeTopic, topic_store

INVALID_REQUEST, UNSUPPORTED_VERSION, UPDATE_FAILED = 42, 35, 135
NOT_STORED, AVAILABLE = 1, 3


def pasted(name: str = "SOURCE", tag: bytes = PASTED, **more: Any) -> StreamsGroupTopologyDescriptionUpdateRequest:
    return replace(pushed("", name=name, **more), unknown_tags=((PASTED_TAG, tag),))


class Kept(list[TopologyDescribed]):
    """Stands for the topic; `failure` is raised by the next write."""

    failure: Exception | None = None

    async def keep(self, fact: TopologyDescribed) -> None:
        if self.failure is not None:
            raise self.failure
        self.append(fact)


async def publish(it: Scene, message: StreamsGroupTopologyDescriptionUpdateRequest, *, code: int = 25) -> Any:
    answer = it.push(message)
    await it.proves_right(HEARTBEAT, code)
    return await answer


def version_in(response: Any) -> str | None:
    found: str | None = json.loads(dict(response.unknown_tags)[PASTED_TAG]).get("version")
    return found


async def test_a_published_version_is_kept_with_its_sender_and_no_describe_shows_it() -> None:
    kept = Kept()
    async with scene(keep_version=kept.keep, principals=Principals()) as it:
        response = await publish(it, pasted(epoch=3))
        assert (response.error_code, response.error_message) == (0, None)
        [fact] = kept
        assert (fact.group, fact.epoch, fact.provenance, fact.member) == ("g", 3, "pasted", None)
        assert (fact.by, fact.client_id) == ("User:ANONYMOUS", "test")
        digits = fact.hash.removeprefix("sha256:")[:12]
        assert version_in(response) == f"{fact.incarnation}/3/{digits}"
        assert await it.status() == NOT_STORED
        assert not it.service.is_known("g") or not it.service.must_delete("g")


async def test_what_a_member_pushed_stays_as_it_is() -> None:
    kept = Kept()
    async with scene(keep_version=kept.keep) as it:
        await it.join()
        assert await it.pushes() == 0
        before = it.service.groups.state("g")
        assert (await publish(it, pasted("OTHER"))).error_code == 0
        assert it.service.groups.state("g") == before
        assert kept[0].incarnation == before.incarnation
        assert await it.status() == AVAILABLE
        assert not await it.join(), "the member is not asked again"


@pytest.mark.parametrize("code", [14, 15, 16, DENIED])
async def test_the_broker_proves_the_right_first(code: int) -> None:
    kept = Kept()
    async with scene(keep_version=kept.keep) as it:
        assert (await publish(it, pasted(group=""), code=code)).error_code == code
    assert not kept


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, NOT_FOUND])
async def test_the_group_need_not_exist(code: int) -> None:
    kept = Kept()
    async with scene(keep_version=kept.keep) as it:
        assert (await publish(it, pasted(), code=code)).error_code == 0
    assert len(kept) == 1


async def test_a_request_without_a_member_and_without_the_tag_is_an_invalid_push() -> None:
    kept = Kept()
    async with scene(keep_version=kept.keep) as it:
        response = await publish(it, pushed(""))
        assert (response.error_code, response.error_message) == (INVALID_REQUEST, "MemberId can't be empty.")
        assert not response.unknown_tags
    assert not kept


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pasted(tag=b"pushed"), "Tagged field 10003 must be 'pasted'."),
        (pasted(epoch=-1), "TopologyEpoch can't be negative."),
        (pasted(node_type=9), "Unknown topology node type: 9"),
        (pasted(group=""), "GroupId can't be empty."),
    ],
)
async def test_what_is_wrong_with_the_request_is_said(message: Any, text: str) -> None:
    kept = Kept()
    async with scene(keep_version=kept.keep) as it:
        response = await publish(it, message)
        assert (response.error_code, response.error_message) == (INVALID_REQUEST, text)
        assert version_in(response) is None, "the client learns that it is a gateway"
    assert not kept


async def test_a_member_cannot_publish_with_the_tag() -> None:
    """With a member it is a push like any other, and the tag means nothing."""
    kept = Kept()
    async with scene(keep_version=kept.keep) as it:
        await it.join()
        assert await it.pushes(replace(pasted(), member_id="m")) == 0
        assert await it.status() == AVAILABLE
    assert not kept


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"scheme": "none"}, "stores no descriptions of this group"),
        ({"groups": allow("orders")}, "stores no descriptions of this group"),
        ({"keep_version": None}, "only with topologies.store = 'kafka:'"),
    ],
)
async def test_a_gateway_that_keeps_no_versions_of_the_group_says_so(settings: dict[str, Any], text: str) -> None:
    kept = Kept()
    async with scene(**{"keep_version": kept.keep, **settings}) as it:
        response = await publish(it, pasted())
        assert response.error_code == UNSUPPORTED_VERSION
        assert text in response.error_message
    assert not kept


async def test_a_text_that_is_too_large_is_refused_and_fails_nothing() -> None:
    kept = Kept()
    async with scene(keep_version=kept.keep, max_bytes=100_000) as it:
        await it.join()
        assert await it.pushes() == 0
        response = await publish(it, pasted(nodes=10_000))
        assert response.error_code == UPDATE_FAILED
        assert "bytes, and 100000 are taken" in response.error_message
        assert it.service.groups.state("g").failed_epoch == -1
        assert await it.status() == AVAILABLE
    assert not kept


async def test_a_group_is_published_as_often_as_it_is_pushed_and_pushes_are_counted_apart() -> None:
    kept = Kept()
    async with scene(keep_version=kept.keep) as it:
        codes = [(await publish(it, pasted()))]
        codes += [await it.push(pasted(f"S{number}")) for number in range(AT_ONCE)]  # the right is known for a while
        assert [one.error_code for one in codes] == [0] * AT_ONCE + [UPDATE_FAILED]
        assert "too often" in codes[-1].error_message
        await it.join()
        assert await it.pushes() == 0
    assert len(kept) == AT_ONCE


@pytest.mark.parametrize("failure", [ClusterError("the topic is away"), TransientFailure("the topic is away")])
async def test_a_version_that_is_not_written_is_reported(failure: Exception) -> None:
    kept = Kept()
    kept.failure = failure
    async with scene(keep_version=kept.keep) as it:
        response = await publish(it, pasted())
        assert (response.error_code, response.error_message) == (UPDATE_FAILED, "the topic is away")


# --- the topic


async def test_a_kept_version_is_a_record_and_never_the_groups_current_one(tmp_path: Path) -> None:
    log = FakeTopic()
    async with topic_store(tmp_path, log, FakeClock(START_MS)) as (store, reported):
        current, paste = version("one"), version("two", provenance="pasted")
        log.add_fact(current)
        await store.keep(paste)
        assert log.kept_keys == keys(current, paste)
        assert (await store.get("g", 0)) == current.description
        assert reported["g"] is not None


async def test_pasted_versions_end_with_the_deleted_group_unless_they_are_newer(tmp_path: Path) -> None:
    log = FakeTopic()
    async with topic_store(tmp_path, log, FakeClock(START_MS)) as (store, _):
        old, new = (replace(version(name, provenance="pasted"), at=at) for name, at in (("two", 500), ("three", 5000)))
        for fact in (version("one"), old, deletion(at=1000), new):
            log.add_fact(fact)
        assert await store.remove_deleted("g", before=1000, limit=9) == 3
        assert log.kept_keys == keys(new)


async def test_a_group_that_has_only_pasted_versions_is_found_when_the_last_is_old(tmp_path: Path) -> None:
    log = FakeTopic()
    async with topic_store(tmp_path, log, FakeClock(START_MS)) as (store, _):
        for group, at in (("a", 500), ("b", 500), ("b", 5000), ("c", 500)):
            log.add_fact(replace(version(f"{group}{at}", group=group, provenance="pasted"), at=at))
        log.add_fact(version("one", group="c"))
        assert await store.groups_only_pasted_before(1000, after="", limit=9) == ["a"]
        assert await store.groups_only_pasted_before(9000, after="a", limit=9) == ["b"]
        assert await store.remove_only_pasted("b", before=1000, limit=9) == 0
        assert await store.remove_only_pasted("c", before=9000, limit=9) == 0
        assert await store.remove_only_pasted("a", before=1000, limit=9) == 1
        assert len(log.kept_keys) == 4


async def test_pasted_versions_beyond_those_kept_are_removed_apart_from_pushed_ones(tmp_path: Path) -> None:
    log = FakeTopic()
    async with topic_store(tmp_path, log, FakeClock(START_MS)) as (store, _):
        facts = [version(f"v{number}", provenance="pasted") for number in range(3)]
        pushed_one = version("one")
        for fact in (pushed_one, *facts):
            log.add_fact(fact)
        assert await store.groups_with_more_than(2, limit=9) == []
        assert await store.groups_with_more_than(2, limit=9, provenance="pasted") == ["g"]
        assert await store.remove_oldest("g", kept=2, limit=9, provenance="pasted") == 1
        assert log.kept_keys == keys(pushed_one, *facts[1:])
