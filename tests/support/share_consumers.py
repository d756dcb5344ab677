"""Real share consumers: kafka-clients 4.3.1 and 4.4.0 in a JVM (`headgate.sharing.Main`), librdkafka, Kafka's console.

    with ShareJvm("clients", tmp_path / "share.log") as jvm:
        one = jvm.join("one", bootstrap, "group", ["topic"], mode="explicit", commit="sync")
        one.wait_for_records(10)

One rule: what a member does with a record stands in the record (`Verdict` in Java, `verdict` here), so every member at
every time does the same, and a test can say beforehand what must become of each offset. Every process ends with its
input, or by its id.
"""

import subprocess
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from headgate.embedded.java import ClassPath, class_path, find_java
from tests.support.calling_jvm import CallingJvm, Data, client_settings

_START_S, _CALL_S, _EVENT_S = 60.0, 90.0, 60.0
_SCHEMA_BYTES = 5  # a byte 0 and the id, before the value that a serializer of a schema registry writes
_LOG4J = Path(__file__).parent / "clients" / "log4j2.xml"

Settings = str | Mapping[str, str]  # a bootstrap address, or all of a Java client's settings
Mode = Literal["explicit", "implicit"]
Commit = Literal["none", "sync", "async"]
Place = tuple[str, int, int]  # topic, partition, offset


class ShareError(AssertionError):
    """A call to a client failed, or something that was waited for did not happen."""


def is_rejected(key: bytes, percent: int) -> bool:
    """Whether a member that rejects so many rejects a record of this key."""
    return zlib.crc32(key) % 100 < percent


class ShareMember:
    """One Java member from its join on, by its name in the JVM, which is its client id too."""

    def __init__(self, jvm: "ShareJvm", name: str, first: int) -> None:
        self.name = name
        self._jvm = jvm
        self._first = first

    def events(self, *kinds: str) -> list[Data]:
        """What it went through since it joined: `polled`, `answered`, `refused`, `hanging`, `error`, `closed`."""
        found = [event for event in self._jvm.events()[self._first :] if event["member"] == self.name]
        return [event for event in found if event["event"] in kinds] if kinds else found

    def wait(self, kind: str, *, count: int = 1, deadline: float = _EVENT_S) -> Data:
        """The `count`th event of this kind, at once if it has been."""

        def found() -> Data | None:
            events = self.events(kind)
            return events[count - 1] if len(events) >= count else None

        return self._jvm.wait_until(found, f"{self.name}: {kind}", deadline, self._story)

    def wait_for_records(self, count: int, *, deadline: float = _EVENT_S) -> None:
        """Until it was given so many, repeated ones too."""
        self._jvm.wait_until(
            lambda: sum(event["count"] for event in self.events("polled")) >= count or None,
            f"{self.name}: {count} records",
            deadline,
            self._story,
        )

    def deliveries(self) -> list[tuple[Place, int, str]]:
        """Place, delivery count and verdict of each record that it was given; for a member that tells each."""
        return [
            ((topic, partition, offset), count, verdict)
            for event in self.events("polled")
            for topic, partition, offset, count, verdict in event["records"]
        ]

    @property
    def errors(self) -> list[str]:
        return [event["text"] for event in self.events("error", "refused")]

    def seen(self) -> Data:
        """`alive`, `records`, `again`, `answered`, `refused`."""
        return self._jvm.call("seen", member=self.name)

    def go(self) -> None:
        """If it hangs on a record it goes on."""
        self._jvm.call("go", member=self.name)

    def set_downstream(self, *, failing_percent: int, on_failure: Literal["reject", "release"] = "reject") -> None:
        """From now on so many of its attempts fail, whatever the records are; 0: each record decides by itself."""
        self._jvm.call("downstream", member=self.name, failing_percent=failing_percent, on_failure=on_failure)

    def close(self) -> None:
        """Acknowledge what it has, and leave the group."""
        self._jvm.call("close", member=self.name)

    def _story(self) -> str:
        told = [f"{event['event']} {event.get('count', '')} {event.get('text', '')}" for event in self.events()[-12:]]
        return "; ".join(told)


class ShareJvm(CallingJvm):
    """A JVM with any number of members, with kafka-clients 4.3.1 (`broker`) or 4.4.0 (`clients`).

    As a context it starts and ends the JVM; `crash` ends it as kill -9 would.
    """

    def __init__(self, clients: ClassPath, log: Path) -> None:
        command = _java("headgate.sharing.Main", clients, "sharing", megabytes=128)
        super().__init__(command, log, error=ShareError, start_s=_START_S, call_s=_CALL_S)

    def join(
        self,
        name: str,
        settings: Settings,
        group: str,
        topics: Sequence[str],
        *,
        mode: Mode = "explicit",
        commit: Commit = "none",
        rejects_percent: int = 0,
        releases: bool = False,
        each: bool = True,
        work_ms: int = 0,
    ) -> ShareMember:
        """A member that runs until it is closed; with `each` it tells every record and every answer.

        With `releases` it releases the records that it would reject by `rejects_percent`, until their delivery limit.
        """
        first = len(self.events())
        self.call(
            "join",
            member=name,
            settings=client_settings(settings),
            group=group,
            topics=topics,
            mode=mode,
            commit=commit,
            rejects_percent=rejects_percent,
            releases=releases,
            each=each,
            work_ms=work_ms,
        )
        return ShareMember(self, name, first)

    def describe(self, settings: Settings, group: str) -> Data:
        """`group`, `state`, `coordinator` and the number of `members` as the Admin client has them."""
        return self.call("describe", settings=client_settings(settings), group=group)


class LibrdkafkaMember:
    """confluent-kafka's share consumer in a thread; it does with records what a Java member does, but for renewing."""

    def __init__(
        self,
        config: Mapping[str, Any],
        group: str,
        topics: Sequence[str],
        *,
        commit: Commit = "sync",
        rejects_percent: int = 0,
    ) -> None:
        self.deliveries: list[tuple[Place, int, str]] = []
        self.errors: list[str] = []
        self.polled_at: list[float] = []  # by the wall clock, when a poll gave records
        self._commit = commit
        self._percent = rejects_percent
        self._topics = list(topics)
        self._ending = threading.Event()
        self._consumer = ShareConsumer(
            {
                "client.id": "librdkafka",
                **config,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "fetch.wait.max.ms": 200,
            }
        )
        self._consumer.set_acknowledgement_commit_callback(self._on_answer)
        self._thread = threading.Thread(target=self._live, name="librdkafka-share", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._ending.set()
        self._thread.join(_CALL_S)
        assert not self._thread.is_alive(), "librdkafka does not end"

    def _live(self) -> None:
        self._consumer.subscribe(self._topics)
        while not self._ending.is_set():
            try:
                self._turn()
            except KafkaException as error:
                self.errors.append(str(error))
        with suppress(KafkaException):
            self._consumer.close()

    def _turn(self) -> None:
        messages = list(self._consumer.poll(0.2))
        for message in messages:
            if (error := message.error()) is not None:
                self.errors.append(str(error))
                continue
            verdict = _verdict(message, self._percent)
            place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
            self.deliveries.append((place, message.delivery_count() or 0, verdict.name.lower()))
            self._consumer.acknowledge(message, verdict)
        if not messages:
            return
        self.polled_at.append(time.time())
        if self._commit == "sync":
            self._consumer.commit_sync(30.0)
        elif self._commit == "async":
            self._consumer.commit_async()

    def _on_answer(self, _offsets: Mapping[Any, set[int]], error: KafkaException | None) -> None:
        if error is not None:
            self.errors.append(str(error))


def _verdict(message: Message, percent: int) -> AcknowledgeType:
    value = message.value() or b""
    text = value[_SCHEMA_BYTES:] if value.startswith(b"\0") else value
    match text[:2]:
        case b"R:":
            return AcknowledgeType.REJECT
        case b"L:":
            return AcknowledgeType.RELEASE
        case b"l:":
            return AcknowledgeType.ACCEPT if (message.delivery_count() or 1) > 1 else AcknowledgeType.RELEASE
        case b"A:":
            return AcknowledgeType.ACCEPT
        case _:
            rejected = is_rejected(message.key() or b"", percent)
            return AcknowledgeType.REJECT if rejected else AcknowledgeType.ACCEPT


def console_share_consumer(bootstrap: str, group: str, topic: str, *, records: int, reject: bool = False) -> str:
    """What `kafka-console-share-consumer.sh` of 4.3.1 prints of so many records, which it accepts or rejects."""
    return kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group),
        *("--max-messages", str(records), "--timeout-ms", "30000"),
        *(["--reject"] if reject else []),
    )


def share_groups_tool(bootstrap: str, *arguments: str) -> str:
    """What `kafka-share-groups.sh` of 4.3.1 prints, errors too."""
    main = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    return kafka_tool(main, "--bootstrap-server", bootstrap, *arguments)


def kafka_tool(main: str, *arguments: str) -> str:
    command = [*_java(main, "broker", megabytes=256), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_CALL_S, check=False)
    return done.stdout + done.stderr


def _java(main: str, clients: ClassPath, *own: str, megabytes: int) -> list[str]:
    return [
        str(find_java().command),
        f"-Xmx{megabytes}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={_LOG4J}",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        class_path(clients, *own),
        main,
    ]
