"""Asking the interceptors of one call, in their order, and of its answer, in the opposite order.

A chain runs until an interceptor wants to wait; then it says so, and is run on with the outcome. So calls that no
interceptor holds, nearly all, never leave the wake-up in which they came.
"""

import asyncio
from dataclasses import replace

import structlog

from headgate.base.ids import ApiVersion
from headgate.gateway.interceptor import (
    Answer,
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    Outcome,
    RequestFrame,
    ResponseFrame,
    Rewritten,
    Session,
    Split,
)

log = structlog.get_logger()

Contexts = list[tuple[Interceptor, object]]


class ChainMeter:
    """How often interceptors failed; one WARN for each interceptor and kind of error, then only the count."""

    def __init__(self) -> None:
        self.failures = 0
        self._warned: set[tuple[str, str]] = set()

    def failed(self, interceptor: Interceptor, call: str, failure: BaseException) -> None:
        self.failures += 1
        kind = (type(interceptor).__name__, type(failure).__name__)
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("interceptor failed, call passed", interceptor=kind[0], call=call, error=repr(failure))


async def outcome_of(hold: Hold) -> Outcome:
    """What a hold comes to; a deadline that passes is `Forward`."""
    try:
        async with asyncio.timeout(hold.deadline):
            return await hold.outcome
    except TimeoutError:
        return Forward()


class RequestChain:
    """One request on its way through its interceptors: what became of it, and who wants to see the answer."""

    __slots__ = ("_asked", "_interceptors", "_meter", "answer", "contexts", "request", "split")

    def __init__(self, interceptors: tuple[Interceptor, ...], request: RequestFrame, meter: ChainMeter) -> None:
        self._interceptors = interceptors
        self._asked = 0
        self._meter = meter
        self.request = request
        self.contexts: Contexts = []
        self.answer: Answer | None = None
        self.split: Split | None = None

    def run(self, session: Session) -> Hold | None:
        """Ask the interceptors that are left; a `Hold` when one of them wants to wait."""
        while self._asked < len(self._interceptors) and self.answer is None and self.split is None:
            interceptor = self._interceptors[self._asked]
            self._asked += 1
            outcome: OnRequest
            try:
                outcome = interceptor.on_request(self.request, session)
            except Exception as failure:  # noqa: BLE001 - a feature that fails must not stop the stream
                self._meter.failed(interceptor, "on_request", failure)
                continue
            if isinstance(outcome, Hold):
                return outcome
            self._apply(interceptor, outcome)
        return None

    async def wait(self, hold: Hold) -> None:
        """Await the outcome of the interceptor that was asked last."""
        interceptor = self._interceptors[self._asked - 1]
        try:
            outcome = await outcome_of(hold)
        except Exception as failure:  # noqa: BLE001 - see run()
            self._meter.failed(interceptor, "hold of a request", failure)
            return
        self._apply(interceptor, outcome)

    def _apply(self, interceptor: Interceptor, outcome: Outcome) -> None:
        match outcome:
            case Forward(context):
                pass
            case Rewritten(body, context, api_version):
                version = self.request.api_version if api_version is None else api_version
                self.request = replace(self.request, body=body, api_version=ApiVersion(version))
            case Split():
                self.split = outcome
                return
            case Answer():
                self.answer = outcome
                return
        if context is not None:
            self.contexts.append((interceptor, context))


class ResponseChain:
    """One answer on its way back: the interceptors that gave a context are asked, the last of them first."""

    __slots__ = ("_asked", "_left", "_meter", "response")

    def __init__(self, contexts: Contexts, response: ResponseFrame, meter: ChainMeter) -> None:
        self._left = list(contexts)
        self._asked = Interceptor()
        self._meter = meter
        self.response = response

    def run(self, session: Session) -> Hold | None:
        while self._left:
            interceptor, context = self._left.pop()
            outcome: OnResponse
            try:
                outcome = interceptor.on_response(self.response, context, session)
            except Exception as failure:
                if interceptor.fail_closed:
                    raise
                self._meter.failed(interceptor, "on_response", failure)
                continue
            if isinstance(outcome, Hold):
                self._asked = interceptor
                return outcome
            self._apply(outcome)
        return None

    async def wait(self, hold: Hold) -> None:
        try:
            outcome = await outcome_of(hold)
        except Exception as failure:  # noqa: BLE001 - see RequestChain.run
            self._meter.failed(self._asked, "hold of an answer", failure)
            return
        if isinstance(outcome, Forward | Rewritten):
            self._apply(outcome)

    def _apply(self, outcome: Forward | Rewritten) -> None:
        if isinstance(outcome, Rewritten):
            version = self.response.api_version if outcome.api_version is None else outcome.api_version
            self.response = replace(self.response, body=outcome.body, api_version=ApiVersion(version))
