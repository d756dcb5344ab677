"""Which topics do not exist: one that may not be described is not known to be gone."""

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from headgate.base.errors import ClusterError
from headgate.kafka.topics import TopicAdmin

CODES = {"gone": KafkaError.UNKNOWN_TOPIC_OR_PART, "hidden": KafkaError.TOPIC_AUTHORIZATION_FAILED}


class AnsweringAdmin(TopicAdmin):
    """Knows every topic that has no error code."""

    def __init__(self, codes: dict[str, int]) -> None:
        super().__init__({})
        self.codes = codes

    @property
    def client(self) -> Any:
        return SimpleNamespace(describe_topics=self._describe)

    def _describe(self, topics: TopicCollection, **_more: object) -> dict[str, "Future[Any]"]:
        names: Iterable[str] = topics.topic_names
        return {name: self._answer(name) for name in names}

    def _answer(self, name: str) -> "Future[Any]":
        answer: Future[Any] = Future()
        if name in self.codes:
            answer.set_exception(KafkaException(KafkaError(self.codes[name])))
        else:
            answer.set_result(SimpleNamespace(topic_id=f"id of {name}"))
        return answer


def test_only_a_topic_that_kafka_does_not_know_is_absent() -> None:
    admin = AnsweringAdmin(CODES)
    assert admin.absent(["there", "hidden", "gone", "no/name"]) == {"gone"}
    assert admin.ids(["there", "hidden", "gone", "no/name"]) == {"there": "id of there"}


def test_nothing_is_absent_where_the_cluster_does_not_answer() -> None:
    with pytest.raises(ClusterError, match="cannot be read"):
        AnsweringAdmin({"gone": KafkaError.BROKER_NOT_AVAILABLE}).absent(["gone"])
