"""A background loop of the share groups that fails is logged, counted and started again: what it does must not end."""

from collections.abc import Awaitable

from structlog.typing import EventDict

from headgate.facts import DispositionsCounted, Fact
from headgate.share_groups.service import ShareGroupService
from tests.support.dispositions import one_accepted
from tests.unit.proxy.stage import config, until
from tests.unit.share_groups.fake_kafka import FakeFactWriter, FakeGroupConfigs, FakeKafka


class BrokenWriter(FakeFactWriter):
    """Its first write fails before it can be awaited, which only a defect does."""

    def __init__(self) -> None:
        super().__init__()
        self.problems = [RuntimeError("a broken writer")]

    def write(self, fact: Fact) -> Awaitable[None]:  # type: ignore[override]
        if self.problems:
            raise self.problems.pop()
        return super().write(fact)


class BrokenConfigs(FakeGroupConfigs):
    """The first question fails."""

    async def max_limit(self) -> int | None:
        if self.loads == 1:
            raise RuntimeError("a broken client")
        return await super().max_limit()


def service_of(kafka: FakeKafka) -> ShareGroupService:
    return ShareGroupService(
        config(9),
        open_with=kafka.open,  # type: ignore[arg-type]
        group_configs=kafka.group_configs,  # type: ignore[arg-type]
        retry_s=0.01,
        load_limits_s=0.01,
    )


def failures(logs: list[EventDict]) -> list[str]:
    return [str(one["exc_info"]) for one in logs if one["event"] == "task of the share groups failed"]


async def test_counts_are_written_although_counting_and_writing_have_failed_once(logs: list[EventDict]) -> None:
    """Without the counts of this worker no breaker would trip for what its clients do."""
    kafka = FakeKafka()
    kafka.writer = BrokenWriter()
    service = service_of(kafka)
    problems = [RuntimeError("a broken count")]

    def drain(second: int) -> list[DispositionsCounted]:
        if problems:
            raise problems.pop()
        return [one_accepted(second)]

    service.acknowledgements.drain = drain  # type: ignore[assignment,method-assign]
    async with service.running():
        await until(lambda: bool(kafka.writer.facts))
        assert service.samples()["headgate_share_groups_failures", ()] == 2
    assert failures(logs)[0] == "a broken count"
    assert len(failures(logs)) == 2


async def test_groups_are_known_although_reading_the_limits_has_failed(logs: list[EventDict]) -> None:
    kafka = FakeKafka()
    kafka.group_configs = BrokenConfigs()
    service = service_of(kafka)
    async with service.running():
        await until(lambda: service.is_ready)
    assert failures(logs) == ["a broken client"]
