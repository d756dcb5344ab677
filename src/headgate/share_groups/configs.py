"""IncrementalAlterConfigs and AlterConfigs of groups: ours are taken out, the broker's go on, the answers are merged.

One rule: a resource is changed whole or not at all, as at a broker. So the broker first says, on the client's own
connection and by a call that changes nothing, whether it would take its part; that also proves the right to change
the group. Then ours are checked, then the broker takes its part, and only behind that ours are written.

Requests without any name of ours pass byte for byte. While nothing is known of the groups such a request is answered
with NOT_CONTROLLER, which Java's Admin client sends again by itself; it does so with no other code.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, assert_never

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiVersion
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
from headgate.proxy.interceptor import (
    Answer,
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    Outcome,
    Prefilter,
    RequestFrame,
    Session,
)
from headgate.proxy.rights import TopicRight, topic_rights
from headgate.share_groups.config_calls import (
    ALTER_CONFIGS,
    GROUP,
    INCREMENTAL_ALTER_CONFIGS,
    Asking,
    ConfigCall,
    Place,
    Refused,
    Resource,
    Result,
    may_have_groups,
    place_of,
    read_call,
)
from headgate.share_groups.config_changes import OUR_NAMES, Step, Wish, wish_of
from headgate.share_groups.model.group_configs import DLQ_TOPIC, LIMIT
from headgate.share_groups.steering import Steering

UNKNOWN_SERVER_ERROR: Final = -1
COORDINATOR_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED = 15, 29
INVALID_CONFIG, NOT_CONTROLLER, INVALID_REQUEST = 40, 41, 42
_LONGEST_S: Final = 60.0
# Each of them may take writes to a topic and a call to the broker, and all together are one answer.
_MOST_GROUPS: Final = 256
_NAMED: Final = re.compile(b"|".join(re.escape(name.encode()) for name in sorted((*OUR_NAMES, LIMIT))))

_TOO_MANY: Final = Refused(INVALID_REQUEST, f"At most {_MOST_GROUPS} groups with configs of Headgate in one request.")
_NOT_READY: Final = Refused(NOT_CONTROLLER, "Headgate has not read the state of its share groups yet: try again.")
_NO_ANSWER: Final = Refused(UNKNOWN_SERVER_ERROR, "The broker did not say whether it takes its part.")
_BROKEN: Final = Refused(INVALID_REQUEST, "A config has no value, is named twice, or has an operation of lists.")


class AlterConfigsInterceptor(Interceptor[None]):
    """`principal_of` says who changes it, for the record."""

    api_keys = frozenset((ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS))
    # Once the broker was asked, the request as it came must not reach it any more.
    fail_closed = True
    max_bytes = 16 * 1024 * 1024  # of some ten thousand topics' configs

    def __init__(
        self, service: Steering, principal_of: Callable[[Session], str | None], *, dlq_auto_create: bool
    ) -> None:
        self._service = service
        self._principal_of = principal_of
        self._dlq_auto_create = dlq_auto_create
        self._doing: set[asyncio.Task[dict[Place, Refused]]] = set()  # at most one for each connection

    def prefilter(self, api_version: ApiVersion) -> Prefilter:  # noqa: ARG002
        return may_have_groups

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[None]:
        if request.api_key == INCREMENTAL_ALTER_CONFIGS and _NAMED.search(request.body) is None:
            return Forward()
        if len(request.body) <= SMALL_BYTES:
            return self._opened(read_call(request), session)
        return Hold(self._opened_aside(request, session), _LONGEST_S)

    async def _opened_aside(self, request: RequestFrame, session: Session) -> Outcome[None]:
        return self._opened(await run_off_loop(lambda: read_call(request)), session)

    def _opened(self, call: ConfigCall, session: Session) -> Outcome[None]:
        places = [place_of(one) for one in call.resources]
        if len(set(places)) != len(places):
            return Forward()  # the broker refuses them, and takes no name of ours
        if not self._service.is_ready:
            if not any(self._may_be_ours(one, call) for one in call.resources):
                return Forward()
            return Answer(call.merged({}, dict.fromkeys(places, _NOT_READY), 0))
        wishes = {place_of(one): wish for one in call.resources if (wish := self._wish(one, call)) is not None}
        if not wishes:
            return Forward()
        if len(wishes) > _MOST_GROUPS:
            return Answer(call.merged({}, dict.fromkeys(places, _TOO_MANY), 0))
        return Answer(self._change(call, wishes, session))

    def _may_be_ours(self, resource: Resource, call: ConfigCall) -> bool:
        """For all that is known without the states of the groups."""
        if resource.resource_type != GROUP or not self._service.selects(resource.resource_name):
            return False
        return call.replaces or any(one.name in OUR_NAMES or one.name == LIMIT for one in resource.configs)

    def _wish(self, resource: Resource, call: ConfigCall) -> Wish | None:
        service, group = self._service, resource.resource_name
        if resource.resource_type != GROUP or not service.selects(group):
            return None
        return wish_of(group, resource.configs, service.states.of(group), service.rules, replaces=call.replaces)

    async def _change(self, call: ConfigCall, wishes: Mapping[Place, Wish], session: Session) -> bytes:
        broker = Asking(call, session)
        others = [one for one in call.resources if place_of(one) not in wishes]
        ours = [(place_of(one), one) for one in call.resources if place_of(one) in wishes]
        tried = [replace(one, configs=wishes[place].tried) for place, one in ours]
        if call.validate_only:
            answers = await broker.ask((*tried, *others), validate_only=True)
            return call.merged(answers, await self._refusals(wishes, answers, session), broker.throttle_ms)
        refused = await self._refusals(wishes, await broker.ask(tried, validate_only=True), session)
        taken = [
            replace(one, configs=wishes[place].rest)
            for place, one in ours
            # An AlterConfigs that names nothing is a change all the same.
            if place not in refused and (wishes[place].rest or call.replaces)
        ]
        answers = await broker.ask((*others, *taken), validate_only=False) if others or taken else {}
        to_do = {
            place: wish
            for place, wish in wishes.items()
            if place not in refused and (place not in answers or answers[place].error_code == 0)
        }
        by = self._principal_of(session) or "unknown"
        # What the broker has taken is seen through even if the client does not wait for it; each step has a deadline.
        doing = asyncio.get_running_loop().create_task(self._do_all(to_do, by))
        self._doing.add(doing)
        doing.add_done_callback(self._doing.discard)
        refused |= await asyncio.shield(doing)
        return call.merged(answers, refused, broker.throttle_ms)

    async def _refusals(
        self, wishes: Mapping[Place, Wish], tried: Mapping[Place, Result], session: Session
    ) -> dict[Place, Refused]:
        """What stands against the wishes: the broker's word first, for it knows who may, then ours."""
        refused: dict[Place, Refused] = {}
        topics: dict[Place, str] = {}
        for place, wish in wishes.items():
            answer = tried.get(place)
            if answer is None or answer.error_code:
                refused[place] = _NO_ANSWER if answer is None else Refused(answer.error_code, answer.error_message)
            elif wish.is_broken:
                refused[place] = _BROKEN
            elif wish.problem is not None:
                refused[place] = Refused(INVALID_CONFIG, wish.problem)
            elif wish.new_topic is not None:
                topics[place] = wish.new_topic
        if topics:
            rights = await topic_rights(session, sorted(set(topics.values())))
            for place, topic in topics.items():
                problem = self._topic_problem(topic, rights[topic])
                if problem is not None:
                    refused[place] = problem
        return refused

    def _topic_problem(self, topic: str, right: TopicRight) -> Refused | None:
        """Dead letters are written by Headgate: without the caller's own right a group would be a way around it."""
        if not right.may_write:
            text = f"Topic authorization failed: to set {DLQ_TOPIC} one needs WRITE on {topic}."
            return Refused(TOPIC_AUTHORIZATION_FAILED, text)
        if not right.exists and not self._dlq_auto_create:
            text = f"Invalid value {topic} for configuration {DLQ_TOPIC}: The topic '{topic}' does not exist."
            return Refused(INVALID_CONFIG, text)
        return None

    async def _do_all(self, wishes: Mapping[Place, Wish], by: str) -> dict[Place, Refused]:
        done = [(place, await self._do(wish, by)) for place, wish in wishes.items()]
        return {place: failed for place, failed in done if failed is not None}

    async def _do(self, wish: Wish, by: str) -> Refused | None:
        service = self._service
        try:
            if wish.changes:
                await service.set_configs(wish.group, wish.changes, by)
            match wish.step:
                case Step.PAUSE:
                    await service.pause(wish.group, wish.reason, by)
                case Step.RESUME:
                    await service.resume(wish.group, wish.reason, by)
                case None:
                    pass
                case _:
                    assert_never(wish.step)
        except ClusterError as problem:
            text = f"Headgate may not have written it: {problem}. What the broker knows is set; set all of it again."
            return Refused(COORDINATOR_NOT_AVAILABLE, text)
        return None
