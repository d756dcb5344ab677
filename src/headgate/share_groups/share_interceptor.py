"""What ShareFetch and ShareAcknowledge have in common on their way to the broker.

One rule: a group without any config of ours is not opened and passes byte for byte. For the others a request waits only
while dead letters are written, and no longer than its locks allow; and nothing that fails lets a paused group acquire.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.base.errors import ClusterError, WireError
from headgate.base.ids import ApiVersion
from headgate.proxy.interceptor import (
    Answer,
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    Prefilter,
    RequestFrame,
    Rewritten,
    Session,
)
from headgate.proxy.rights import GROUP_AUTHORIZATION_FAILED, GroupRight, Rights
from headgate.share_groups.acks import Work
from headgate.share_groups.dead_letter_delivery import Fate, Wanted
from headgate.share_groups.deferred_acks import Debt
from headgate.share_groups.model.group_configs import GroupSettings
from headgate.share_groups.service import ShareGroupService
from headgate.wire.primitives import Buffer
from headgate.wire.share_calls import ShareRequest, group_bytes, without_bytes

FIRST_EPOCH: Final = 0
LAST_EPOCH: Final = -1
INVALID_REQUEST: Final = 42
_MARGIN_S: Final = 5.0  # for what a hold does beside waiting
_NOT_KNOWN: Final = "it is not known whether the client may read in the name of its group"


@dataclass(slots=True)
class Sent:
    """A request that went on to the broker; `paused`: it was told to acquire nothing.

    `generation` is the group's when it went: what it acquires may be older than a trip that is read before its answer.
    """

    share: ShareRequest
    work: Work
    generation: int
    paused: bool
    waited: bool = False


class ShareInterceptor(Interceptor[Sent]):
    """Base of the two."""

    # 50,000 acknowledgements of one record each: more than a real member sends, and 0.2 s of work.
    max_bytes = 1024 * 1024
    max_response_bytes = 2**31 - 1  # what a frame may have is the connection's to say

    def __init__(self, service: ShareGroupService, rights: Rights) -> None:
        self._service = service
        self._rights = rights
        self._in_flight: dict[int, list[Work]] = {}  # with dead letters, by connection

    # --- what the two differ in

    def _read(self, request: RequestFrame) -> ShareRequest:
        raise NotImplementedError

    def _may_pay(self, share: ShareRequest) -> bool:
        """Whether what the member owes can ride on this request."""
        raise NotImplementedError

    def _paid(self, body: Buffer, version: ApiVersion, work: Work) -> bytes:
        """The request with the REJECTs of what is owed."""
        raise NotImplementedError

    def _refusal(self, version: ApiVersion) -> bytes:
        """The answer to what cannot be read."""
        raise NotImplementedError

    # --- on the way there

    def prefilter(self, api_version: ApiVersion) -> Prefilter:  # noqa: ARG002 - all versions begin with the group
        return self._concerns

    def _concerns(self, view: Buffer, pos: int, end: int) -> bool:
        if self._service.is_opening:
            return True
        name = group_bytes(view, pos, end)
        return name is None or name in self._service.minded

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[Sent]:
        try:
            share = self._read(request)
        except WireError:
            # Perhaps the broker can read it all the same, and then it must not get around a pause.
            return Answer(self._refusal(request.api_version))
        if not share.group or not share.member:
            return Forward()
        if self._service.is_opening:
            wait_s = self._service.opening_wait_s(share)
            return Hold(self._when_open(request, share, session, wait_s), wait_s + self._service.longest_hold_s())
        return self._decide(request, share, session)

    async def _when_open(
        self, request: RequestFrame, share: ShareRequest, session: Session, wait_s: float
    ) -> Forward[Sent] | Rewritten[Sent]:
        """Which groups are paused is not known yet: it waits, and if that takes too long it acquires nothing."""
        if not await self._service.opened_within(wait_s) and self._service.is_opening:
            return self._send(request, share, Work(share.group or "", share.member or "", {}), session, unknown=True)
        decided = self._decide(request, share, session)
        if isinstance(decided, Hold):
            outcome = await decided.outcome
            assert isinstance(outcome, Forward | Rewritten)
            return outcome
        assert isinstance(decided, Forward | Rewritten)
        return decided

    def _decide(
        self, request: RequestFrame, share: ShareRequest, session: Session
    ) -> Forward[Sent] | Rewritten[Sent] | Hold[Sent]:
        service = self._service
        group, member = share.group or "", share.member or ""
        state = service.states.of(group)
        if not state.is_minded or not service.selects(group):
            return Forward()
        debts: list[Debt] = []
        if service.debts and self._may_pay(share):
            debts = service.debts.take(group, member, service.now(), is_last=share.session_epoch == LAST_EPOCH)
        work = service.acks.read(share, debts)
        wanted: list[Wanted] = []
        if state.settings.dlq_topic is not None:
            wanted = service.acks.rejected(work)
        if not wanted and not debts:
            return self._send(request, share, work, session)
        # What is accepted in the same request waits with the rest.
        deadline = service.hold_s(state.settings, [one.key for one in work.partitions.values()])
        writing = self._with_letters(request, share, work, session, wanted, state.settings, deadline)
        return Hold(writing, deadline + _MARGIN_S)

    async def _with_letters(
        self,
        request: RequestFrame,
        share: ShareRequest,
        work: Work,
        session: Session,
        wanted: Sequence[Wanted],
        settings: GroupSettings,
        deadline_s: float,
    ) -> Forward[Sent] | Rewritten[Sent]:
        until = asyncio.get_running_loop().time() + deadline_s
        # Not ended with the client: what is written by then has to be known, to be withdrawn.
        writing = self._service.spawn(self._written(work, wanted, settings, session, until))
        try:
            await asyncio.wait({writing})
        except asyncio.CancelledError:
            # The client is gone before its acknowledgements went on, so its records come again.
            acks = self._service.acks
            writing.add_done_callback(lambda _: acks.withdraw(work.group, work.letters, {"outcome": "not sent"}))
            raise
        return self._send(request, share, work, session)

    async def _written(
        self, work: Work, wanted: Sequence[Wanted], settings: GroupSettings, session: Session, until: float
    ) -> None:
        """Until then; `work` has the fate of each."""
        letters = self._service.letters
        if wanted:
            try:
                async with asyncio.timeout_at(until):
                    code = await self._rights.ask(session, GroupRight.READ, work.group)
            except (ClusterError, TimeoutError):
                for one in wanted:
                    letters.give_up(one, _NOT_KNOWN)
                    _add(work, one, Fate((), ((one.first, one.last),)))
            else:
                if code != GROUP_AUTHORIZATION_FAILED:  # else the broker refuses all of it
                    left_s = until - asyncio.get_running_loop().time()
                    for one, fate in zip(wanted, await letters.write(settings, wanted, session, left_s), strict=True):
                        _add(work, one, fate)
        for place in work.partitions.values():
            for debt in place.debts:
                place.fates.append((debt.wanted, await _fate(debt, until)))

    def _send(
        self, request: RequestFrame, share: ShareRequest, work: Work, session: Session, *, unknown: bool = False
    ) -> Rewritten[Sent] | Forward[Sent]:
        """The request goes on now: whether the group is paused is asked last."""
        body: Buffer | None = None
        if any(one.debts for one in work.partitions.values()):
            body = self._paid(request.body, request.api_version, work)
            share = self._read(replace(request, body=body))
        is_fetch = share.max_bytes_at > 0 and share.session_epoch != LAST_EPOCH
        paused = is_fetch and (unknown or self._service.is_paused(work.group))
        if paused:
            body = without_bytes(request.body if body is None else body, share)
        if any(fate.written for _, fate in work.letters):
            self._in_flight.setdefault(session.number, []).append(work)
        sent = Sent(share, work, self._service.states.of(work.group).generation, paused, waited=unknown)
        return Forward(sent) if body is None else Rewritten(bytes(body), sent)

    # --- on the way back

    def _answered(self, sent: Sent, session: Session) -> None:
        """Its dead letters are not in doubt any more."""
        works = self._in_flight.get(session.number)
        if works is not None and sent.work in works:
            works.remove(sent.work)
            if not works:
                del self._in_flight[session.number]

    def on_close(self, session: Session) -> None:
        """What was on its way when the connection ended may have arrived or not."""
        for work in self._in_flight.pop(session.number, ()):
            self._service.acks.withdraw(work.group, work.letters, {"outcome": "unknown"})


def _add(work: Work, wanted: Wanted, fate: Fate) -> None:
    work.partitions[wanted.key[2:]].fates.append((wanted, fate))


async def _fate(debt: Debt, until: float) -> Fate:
    """Of the letters that were begun when the range was taken out of the answer."""
    letter = debt.letter
    await asyncio.wait({letter}, timeout=max(0.0, until - asyncio.get_running_loop().time()))
    if letter.done() and not letter.cancelled() and letter.exception() is None:
        return letter.result()[debt.at]
    return Fate((), ((debt.wanted.first, debt.wanted.last),))
