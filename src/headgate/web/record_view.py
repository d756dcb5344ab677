"""Shows one record that became a dead letter, read at this moment with the operator's own rights.

No payload is in any table, and the service account is not used: the broker decides whether the operator may READ the
topic. Nothing of the record but its address is logged or recorded.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.dead_letters.model.plans import PlanRecord
from headgate.dead_letters.record_reader import ReadRecord, RecordReader
from headgate.kafka.connections import Connections, Credentials
from headgate.kafka.topics import TopicAdmin, reason
from headgate.web.operations import GatewayAccess, LoginRate, OperationError, OperationRate, OperationTrail, Operator
from headgate.web.replay_runs.job import client_settings_of

MAX_VALUE: Final = 16 * 1024
MAX_SHORT: Final = 1024  # of keys and of the values of headers
MAX_HEADERS: Final = 50
_MAX_NAME: Final = 255
_CALL_S: Final = 10.0
_READ_S: Final = 30.0
_THREADS: Final = 2
_MOST_WAITING: Final = 8
_MOST, _MOST_OF_ONE = 120, 30  # records within a minute
_GONE: Final = {
    "source_missing": "The record is gone from its topic, and the dead letter has no copy (source_missing)",
    "copy_differs": "The record is gone, and the copy in the dead letter names another record (copy_differs)",
}

Row = dict[str, Any]


class RecordViewer:
    """`close` it. Reading blocks, so it has a few threads of its own."""

    def __init__(self, gateway: GatewayAccess, trail: OperationTrail, clock: Clock, logins: LoginRate) -> None:
        self._gateway = gateway
        self._logins = logins
        self._trail = trail
        self._rate = OperationRate(clock, most=_MOST, most_of_one=_MOST_OF_ONE)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="headgate-record")
        self._waiting = 0

    async def show(self, group: str, record: PlanRecord, operator: Operator) -> Row:
        """Key, value and headers, bounded; `OperationError` when the operator may not read it, or it is gone."""
        self._rate.take(operator.caller)
        address: dict[str, object] = {name: getattr(record, name) for name in ("topic", "partition", "offset")}
        async with self._trail.audited(group, operator, {"operation": "show_record", **address}):
            dialler = await self._gateway.login(operator)
            async with Connections(dialler) as connections:
                await self._gateway.reach(connections, operator, self._logins)
            found = await self._run(lambda: self._read(record, dialler.credentials, operator.principal))
        return {"group": group, **address, **found}

    async def close(self) -> None:
        await off_loop(lambda: self._pool.shutdown(wait=False, cancel_futures=True))

    async def _run(self, work: Callable[[], Row]) -> Row:
        if self._waiting >= _MOST_WAITING:
            text = "Too many records are being read: repeat the request in a moment"
            raise OperationError(HTTPStatus.SERVICE_UNAVAILABLE, text, outcome="failed")
        self._waiting += 1
        reading = asyncio.wrap_future(self._pool.submit(work))
        reading.add_done_callback(self._on_done)
        try:
            async with asyncio.timeout(_READ_S):
                return await asyncio.shield(reading)
        except TimeoutError:
            text = f"The record could not be read within {_READ_S:.0f} s"
            raise OperationError(HTTPStatus.GATEWAY_TIMEOUT, text, outcome="failed") from None
        except ClusterError as failure:
            raise OperationError(HTTPStatus.BAD_GATEWAY, _sentence(str(failure)), outcome="failed") from None

    def _on_done(self, reading: "asyncio.Future[Row]") -> None:
        self._waiting -= 1
        if not reading.cancelled():
            reading.exception()  # it may come too late for its request

    # --- on a thread

    def _read(self, record: PlanRecord, credentials: Credentials | None, principal: str) -> Row:
        settings = client_settings_of(self._gateway, credentials)
        admin = TopicAdmin(settings)
        _require_read(admin, record.topic, principal)
        if record.copied:
            _require_read(admin, record.dlq_topic, principal)
        reader = RecordReader(settings, admin)
        try:
            found = reader.read(record)
        finally:
            reader.close()
        if isinstance(found, str):
            raise OperationError(HTTPStatus.NOT_FOUND, _GONE.get(found, found), outcome="failed")
        return shown_record(found)


def _require_read(admin: TopicAdmin, topic: str, principal: str) -> None:
    """`OperationError` when the broker says that the user may not READ the topic; one that is gone may be tried."""
    try:
        described = admin.client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=_CALL_S
        )[topic].result(_CALL_S)
    except KafkaException as failure:
        error = failure.args[0] if failure.args else None
        code = error.code() if isinstance(error, KafkaError) else None
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return
        if code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise ClusterError(f"the topic {topic} cannot be described: {reason(failure)}") from None
    else:
        allowed = described.authorized_operations
        if allowed is None or AclOperation.READ in allowed:
            return
    text = f"{principal} needs READ on the topic {topic}: kafka-acls.sh --add --operation Read --topic {topic}"
    raise OperationError(HTTPStatus.FORBIDDEN, text)


def shown_record(record: ReadRecord) -> Row:
    headers = record.headers[:MAX_HEADERS]
    return {
        "from": "dead_letter" if record.is_copy else "source",
        "timestamp": record.timestamp_ms,
        "size": record.size,
        "key": shown_bytes(record.key, MAX_SHORT),
        "value": shown_bytes(record.value, MAX_VALUE),
        "headers": [{"name": name[:_MAX_NAME], "value": shown_bytes(value, MAX_SHORT)} for name, value in headers],
        "headers_truncated": len(record.headers) > MAX_HEADERS,
    }


def shown_bytes(content: bytes | None, most: int) -> Mapping[str, Any] | None:
    """The first bytes as hexadecimal digits, and as text where they are UTF-8."""
    if content is None:
        return None
    first = bytes(content[:most])
    text: str | None
    try:
        text = first.decode()
    except UnicodeDecodeError as problem:
        # The last character may be cut, which has four bytes at most.
        is_cut = len(content) > most and problem.start > most - 4 and problem.reason == "unexpected end of data"
        text = first[: problem.start].decode() if is_cut else None
    return {"size": len(content), "hex": first.hex(), "text": text, "truncated": len(content) > most}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
