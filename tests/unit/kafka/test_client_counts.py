"""The number of librdkafka clients of a worker is the one that the documentation lists."""

import re
from pathlib import Path

from headgate.config.model import Config, ConnectConfig
from headgate.kafka.client_counts import most_clients

PAGE = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text("utf-8")


def test_the_architecture_page_lists_every_client_of_a_worker() -> None:
    [section] = re.findall(r"^## Kafka clients of a worker\n(.+?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    recorded = ConnectConfig(record=True, principals=("User:connect",))
    assert len(rows) - 1 == most_clients(Config(connect={"one": recorded, "two": recorded}))
