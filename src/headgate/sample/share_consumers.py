"""The share groups of the sample: one bills orders, the other notifies customers of shipments.

Each rejects a few records, and all of them while its downstream is down (`outages.py`): then its circuit breaker
pauses it. The breaker of `sample-notices` resumes it. `sample-billing` needs an operator: this module after a scheduled
outage, and the reader after one by the switch. They are ordinary clients of the gateway: their configs are set as an
operator would set them.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import AcknowledgeType, Message, ShareConsumer

from headgate.config.addresses import Address
from headgate.kafka.connections import Connections, Dialler
from headgate.kafka.topics import quiet
from headgate.sample.outages import Downstream, DownstreamState
from headgate.sample.shop import BILLING, NOTICES, ORDERS, ORDERS_DLQ, SHIPMENTS, SHIPMENTS_DLQ
from headgate.share_groups.broker_configs import SET, alter_group
from headgate.share_groups.model.group_configs import (
    AUTO_RESUME_ENABLE,
    AUTO_RESUME_MS,
    BREAKER_ENABLE,
    DLQ_TOPIC,
    MIN_MESSAGES,
    RESUME,
    WINDOW_MS,
)
from headgate.wire.messages.configs import IncrementalConfig

BILLING_SWITCH: Final = "billing-is-down"
_BREAKER: Final = {
    "share.auto.offset.reset": "earliest",
    BREAKER_ENABLE: "true",
    WINDOW_MS: "30000",
    MIN_MESSAGES: "10",
}
_TOO_MUCH: Final = 490  # one in fifty orders is more than that
_POLL_S: Final = 1.0
_FETCH_WAIT_MS: Final = 3_000  # an idle fetch is answered after so long
_RESUMED_AFTER_S: Final = 15.0
_REASON: Final = "the payment provider answers again"


def _is_billed(message: Message) -> bool:
    try:
        return bool(json.loads(message.value() or b"")["amount"] <= _TOO_MUCH)
    except (ValueError, TypeError, KeyError):
        return False


def _has_customer(message: Message) -> bool:
    try:
        return bool(json.loads(message.value() or b"")["customer"])
    except (ValueError, TypeError, KeyError):
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareProgram:
    """A share group: `accepts` decides on a record while the downstream is up.

    `switch` is the file that makes its downstream fail, `first_outage` the time of the first scheduled outage as a part
    of the time between two.
    """

    group: str
    topic: str
    configs: Mapping[str, str]
    accepts: Callable[[Message], bool]
    switch: str
    first_outage: float
    is_resumed_by_sample: bool


PROGRAMS: Final = (
    ShareProgram(
        group=BILLING,
        topic=ORDERS,
        configs={**_BREAKER, DLQ_TOPIC: ORDERS_DLQ},
        accepts=_is_billed,
        switch=BILLING_SWITCH,
        first_outage=0.75,
        is_resumed_by_sample=True,
    ),
    ShareProgram(
        group=NOTICES,
        topic=SHIPMENTS,
        configs={**_BREAKER, DLQ_TOPIC: SHIPMENTS_DLQ, AUTO_RESUME_ENABLE: "true", AUTO_RESUME_MS: "60000"},
        accepts=_has_customer,
        switch="notices-are-down",
        first_outage=0.25,
        is_resumed_by_sample=False,
    ),
)


class SampleShareConsumer:
    """Consumes on the thread that calls `run`, until `stop` is set."""

    def __init__(
        self,
        program: ShareProgram,
        bootstrap: str,
        downstream: Downstream,
        stop: threading.Event,
        monotonic: Callable[[], float],
    ) -> None:
        self._program = program
        self._bootstrap = bootstrap
        self._downstream = downstream
        self._stop = stop
        self._monotonic = monotonic
        self._resume_at: float | None = None

    def run(self) -> None:
        self._alter(self._program.configs)
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self._program.group,
            "share.acknowledgement.mode": "explicit",
            "fetch.wait.max.ms": _FETCH_WAIT_MS,
        }
        consumer = ShareConsumer(quiet(settings, client__id=self._program.group))
        try:
            consumer.subscribe([self._program.topic])
            while not self._stop.is_set():
                messages = consumer.poll(_POLL_S) or ()
                state = self._downstream.state()
                for message in messages:
                    if message.error() is None:
                        is_done = state is DownstreamState.UP and self._program.accepts(message)
                        consumer.acknowledge(message, AcknowledgeType.ACCEPT if is_done else AcknowledgeType.REJECT)
                self._resume(state, has_records=bool(messages))
        finally:
            consumer.close()

    def _resume(self, state: DownstreamState, *, has_records: bool) -> None:
        """Resume the group a while after a scheduled outage; what the reader's switch did is left to the reader."""
        if not self._program.is_resumed_by_sample:
            return
        if state is DownstreamState.SWITCHED_OFF:
            self._resume_at = None
        elif state is DownstreamState.SCHEDULED_OUTAGE:
            if has_records or self._resume_at is not None:  # a group that was paused before receives nothing
                self._resume_at = self._monotonic() + _RESUMED_AFTER_S
        elif self._resume_at is not None and self._monotonic() >= self._resume_at:
            self._resume_at = None
            self._alter({RESUME: _REASON})

    def _alter(self, configs: Mapping[str, str]) -> None:
        asyncio.run(self._alter_configs(configs))

    async def _alter_configs(self, configs: Mapping[str, str]) -> None:
        host, _, port = self._bootstrap.rpartition(":")
        changes = tuple(
            IncrementalConfig(name=name, config_operation=SET, value=value) for name, value in configs.items()
        )
        async with Connections(Dialler(bootstrap=(Address(host, int(port)),))) as connections:
            await alter_group(await connections.bootstrap(), self._program.group, changes)
