"""The status of a breaker as JSON: one order of keys, and values of other gateways are never trusted."""

import json

import pytest

from headgate.share_groups.model.breaker import BreakerStatus, LastResume, PauseReason, decode_status

STATUS = BreakerStatus(
    group="sg",
    enabled=True,
    paused=True,
    pause_reasons=(PauseReason(code="OPERATOR", text="deploy", by="User:ops", since=2),),
    generation=4,
    window_ms=60_000,
    delivered=75,
    dlq_written=25,
    dlq_rate=0.25,
    threshold_percent=20,
    min_messages=100,
    auto_resume_at=9,
    last_resume=LastResume(reason="mended", by="User:ops", at=1),
    dlq_topic="dlq.o",
    limit=5,
    limit_unprotected=False,
    spooled=12,
    oldest_spooled_at=7,
)
JSON = (
    '{"group":"sg","enabled":true,"paused":true,'
    '"pause_reasons":[{"code":"OPERATOR","text":"deploy","by":"User:ops","since":2}],'
    '"phase":null,"generation":4,"window_ms":60000,"delivered":75,"dlq_written":25,"dlq_rate":0.25,'
    '"threshold_percent":20,"min_messages":100,"auto_resume_at":9,'
    '"last_resume":{"reason":"mended","by":"User:ops","at":1},'
    '"dlq_topic":"dlq.o","limit":5,"limit_unprotected":false,"spooled":12,"oldest_spooled_at":7}'
)


def test_the_keys_of_the_json_have_one_order() -> None:
    assert STATUS.encode().decode() == JSON
    assert decode_status("sg", JSON.encode()) == STATUS


@pytest.mark.parametrize("field", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_field_that_is_not_an_object_is_no_status(field: bytes) -> None:
    assert decode_status("sg", field) is None


@pytest.mark.parametrize(
    "odd", [{}, {"pause_reasons": "no"}, {"dlq_rate": "x", "generation": True}, {"group": [], "last_resume": 1}]
)
def test_a_value_of_an_unexpected_type_is_unknown(odd: dict[str, object]) -> None:
    assert decode_status("sg", json.dumps(odd).encode()) == BreakerStatus(group="sg")


def test_keys_of_a_newer_gateway_are_kept_after_the_known_ones() -> None:
    newer = json.loads(JSON)
    newer = {"added": {"a": [1]}, **newer, "extra": 2}
    newer["pause_reasons"][0]["until"] = 3
    newer["last_resume"]["how"] = "x"
    status = decode_status("sg", json.dumps(newer).encode())
    assert status is not None
    assert status.document() == newer
    assert list(status.document())[-3:] == ["oldest_spooled_at", "added", "extra"]
