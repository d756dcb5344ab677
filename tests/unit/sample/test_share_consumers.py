"""Who resumes a share group of the sample after an outage. How it consumes is in `tests/integration/test_dev.py`."""

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from headgate.sample.outages import Downstream, DownstreamState, OutageSchedule
from headgate.sample.share_consumers import PROGRAMS, SampleShareConsumer, ShareProgram
from headgate.sample.shop import BILLING, NOTICES
from headgate.share_groups.model.group_configs import RESUME

UP, SCHEDULED, SWITCHED = DownstreamState.UP, DownstreamState.SCHEDULED_OUTAGE, DownstreamState.SWITCHED_OFF


class Resumed:
    """A consumer whose outages a test plays; `reasons` are those of its resumes."""

    def __init__(self, program: ShareProgram, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.reasons: list[str] = []
        downstream = Downstream(folder / program.switch, OutageSchedule(every_s=0, first_part=0), lambda: self.now)
        stop = threading.Event()
        self._consumer = SampleShareConsumer(program, "127.0.0.1:1", downstream, stop, lambda: self.now)
        monkeypatch.setattr(self._consumer, "_alter", self._alter)

    def _alter(self, configs: Mapping[str, str]) -> None:
        self.reasons.append(configs[RESUME])

    def pass_time(self, state: DownstreamState, seconds: int, *, has_records: bool = False) -> None:
        for _ in range(seconds):
            self.now += 1
            self._consumer._resume(state, has_records=has_records)


def resumed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Resumed:
    return Resumed(next(one for one in PROGRAMS if one.group == name), folder, monkeypatch)


def test_billing_is_resumed_once_a_while_after_a_scheduled_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = resumed(BILLING, tmp_path, monkeypatch)
    billing.pass_time(UP, 30, has_records=True)
    billing.pass_time(SCHEDULED, 10, has_records=True)
    billing.pass_time(SCHEDULED, 40)  # paused by now
    billing.pass_time(UP, 14)
    assert billing.reasons == []
    billing.pass_time(UP, 60)
    assert len(billing.reasons) == 1


def test_a_pause_that_the_reader_made_is_left_to_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    billing = resumed(BILLING, tmp_path, monkeypatch)
    billing.pass_time(SWITCHED, 20, has_records=True)
    billing.pass_time(UP, 60)
    billing.pass_time(SCHEDULED, 50)  # still paused, so nothing comes
    billing.pass_time(UP, 60)
    assert billing.reasons == []


def test_a_switch_during_a_scheduled_outage_makes_it_the_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = resumed(BILLING, tmp_path, monkeypatch)
    billing.pass_time(SCHEDULED, 10, has_records=True)
    billing.pass_time(SWITCHED, 5)
    billing.pass_time(UP, 60)
    assert billing.reasons == []


def test_notices_are_resumed_by_their_breaker_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notices = resumed(NOTICES, tmp_path, monkeypatch)
    notices.pass_time(SCHEDULED, 50, has_records=True)
    notices.pass_time(UP, 60)
    assert notices.reasons == []
