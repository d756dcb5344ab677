"""`docs/facts.md` tells the truth: its examples are facts, and none is left out."""

import json
import re
from pathlib import Path

from headgate.facts import Rejected, decode, encode
from headgate.facts.__main__ import fields_table
from headgate.facts.codec import FORMS
from headgate.facts.topics import DAY_MS, TOPICS

DOC = (Path(__file__).parents[3] / "docs" / "facts.md").read_text("utf-8")


def examples() -> list[tuple[str, bytes, bytes | None]]:
    found = []
    for section in re.split(r"^## ", DOC, flags=re.MULTILINE):
        topic = re.match(r"`(\w+)`\n", section)
        for block in re.findall(r"```\n(.*?)```", section, flags=re.DOTALL) if topic else ():
            for line in block.splitlines():
                _, end = json.JSONDecoder().raw_decode(line)
                value = line[end + 1 :]
                found.append(
                    (str(topic and topic[1]), line[:end].encode(), None if value == "null" else value.encode())
                )
    return found


def test_every_example_is_a_fact_in_the_form_that_we_write() -> None:
    for topic, key, value in examples():
        fact = decode(topic, key, value)
        assert not isinstance(fact, Rejected), (key, fact)
        assert encode(fact) == (topic, key, value)


def test_every_fact_has_an_example_and_its_name_stands_there() -> None:
    shown = {type(decode(*example)).__name__ for example in examples()}
    assert shown == {form.cls.__name__ for form in FORMS}
    assert set(re.findall(r"\*\*([A-Z]\w+)\*\*", DOC)) >= shown


def test_the_tables_of_fields_are_those_of_the_declarations() -> None:
    missing = [form.cls.__name__ for form in FORMS if form.value is not None and fields_table(form) not in DOC]
    assert not missing, "paste the output of `python -m headgate.facts`"


def test_the_table_of_topics_is_the_codes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\w+) \| ([^|]+) \|", DOC, flags=re.MULTILINE)
    assert [(suffix, int(partitions), policy) for suffix, partitions, policy, _ in rows] == [
        (topic.suffix, topic.partitions, topic.cleanup) for topic in TOPICS
    ]
    kept = {topic.suffix: f"{topic.retention_ms // DAY_MS} days" for topic in TOPICS if topic.retention_ms}
    assert {suffix: text.strip() for suffix, _, _, text in rows if "days" in text} == kept
