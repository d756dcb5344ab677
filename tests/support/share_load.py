"""Records at a steady rate over the partitions of a topic, each with its number as its key.

One rule: record n is offset n // partitions of partition n % partitions, so a test can say of each place what a
member does with its record.
"""

import threading
import time
from collections.abc import Set as AbstractSet

from confluent_kafka import Producer

from tests.support.share_consumers import is_rejected
from tests.support.share_scene import ShareScene
from tests.support.share_truth import Spot

_TURN_S = 0.02
_FLUSH_S = 60.0


class Load:
    """Sends from its construction on, at `rate` records a second in all, until it is stopped."""

    def __init__(self, scene: ShareScene, topic: str, *, rate: int, partitions: int) -> None:
        self.sent = 0
        self._topic, self._rate, self._partitions = topic, rate, partitions
        self._producer = Producer({**scene.direct, "linger.ms": 5, "enable.idempotence": True})
        self._ending, self._going = threading.Event(), threading.Event()
        self._going.set()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        owed = 0.0
        while not self._ending.wait(_TURN_S):
            now = time.monotonic()
            owed += (now - began) * self._rate if self._going.is_set() else 0.0
            began = now
            for _ in range(int(owed)):
                key = str(self.sent).encode()
                self._producer.produce(self._topic, b"x" * 100, key, partition=self.sent % self._partitions)
                self.sent += 1
            owed -= int(owed)
            self._producer.poll(0)

    def pause(self) -> int:
        """Send nothing more until `resume`: how many there are, all of them acknowledged."""
        self._going.clear()
        time.sleep(2 * _TURN_S)
        assert self._producer.flush(_FLUSH_S) == 0
        return self.sent

    def resume(self) -> None:
        self._going.set()

    def stop(self) -> int:
        """How many there are, all of them acknowledged."""
        self._ending.set()
        self._thread.join(_FLUSH_S)
        assert self._producer.flush(_FLUSH_S) == 0
        return self.sent

    def rejected(self, percent: int) -> AbstractSet[Spot]:
        """The places of what was sent so far that a member which rejects so many rejects."""
        return {
            (number % self._partitions, number // self._partitions)
            for number in range(self.sent)
            if is_rejected(str(number).encode(), percent)
        }
