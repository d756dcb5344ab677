"""The share group of the sample: it bills orders, rejects some of them, and all while its downstream is "down".

While the file `.headgate/billing-is-down` exists all records are rejected, and the circuit breaker pauses the group. It
is an ordinary client of the gateway: its configs are set as an operator would set them.
"""

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Final

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from headgate.base.errors import ClusterError
from headgate.config.addresses import Address
from headgate.kafka.connections import Connections, Dialler
from headgate.kafka.topics import quiet
from headgate.share_groups.broker_configs import SET, alter_group
from headgate.share_groups.model.group_configs import BREAKER_ENABLE, DLQ_TOPIC, MIN_MESSAGES, WINDOW_MS
from headgate.wire.messages.configs import IncrementalConfig

GROUP: Final = "sample-billing"
DEAD_LETTERS: Final = "dlq.orders"
DOWN: Final = "billing-is-down"
_CONFIGS: Final = {
    "share.auto.offset.reset": "earliest",
    DLQ_TOPIC: DEAD_LETTERS,
    BREAKER_ENABLE: "true",
    WINDOW_MS: "30000",
    MIN_MESSAGES: "20",
}
_TOO_MUCH: Final = 490  # one in fifty orders is more than that
_POLL_S: Final = 0.5
_END_S: Final = 3.0


class Billing:
    """Consumes orders from `topic` until `stop` is set; `folder` may hold the file that makes billing fail."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, stop: threading.Event) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._down = folder / DOWN
        self._stop = stop
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._down.unlink(missing_ok=True)
        self._thread = threading.Thread(target=self._run, name="headgate-sample-billing", daemon=True)
        self._thread.start()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(_END_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._configure())
            self._bill()
        except (ClusterError, KafkaException) as failure:
            if not self._stop.is_set():
                print(f"headgate: the share group of the sample ended: {failure}", file=sys.stderr)

    async def _configure(self) -> None:
        host, _, port = self._bootstrap.rpartition(":")
        changes = tuple(
            IncrementalConfig(name=name, config_operation=SET, value=value) for name, value in _CONFIGS.items()
        )
        async with Connections(Dialler(bootstrap=(Address(host, int(port)),))) as connections:
            await alter_group(await connections.bootstrap(), GROUP, changes)

    def _bill(self) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
        }
        consumer = ShareConsumer(quiet(settings, client__id=GROUP))
        try:
            consumer.subscribe([self._topic])
            while not self._stop.is_set():
                for message in consumer.poll(_POLL_S) or ():
                    if message.error() is None:
                        verdict = AcknowledgeType.ACCEPT if self._is_billed(message) else AcknowledgeType.REJECT
                        consumer.acknowledge(message, verdict)
        finally:
            consumer.close()

    def _is_billed(self, message: Message) -> bool:
        if self._down.exists():
            return False
        try:
            return bool(json.loads(message.value() or b"")["amount"] <= _TOO_MUCH)
        except (ValueError, TypeError, KeyError):
            return False
