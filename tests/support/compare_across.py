"""Across runs: one script run direct, and once more through the gateway; what their clients were told is the same.

One rule: what is determined by the script is compared exactly and in order, requests too, since a client that was
told the same asks the same. The rest is compared by its shape; `compare_rules.py` says what the rest is, and why.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.compare_calls import Call, Conversation, Difference, Tree, diff_of
from tests.support.compare_inside import ANNOUNCED
from tests.support.compare_rules import (
    OPTIONAL,
    POLLED,
    RECORDS_SOMETIMES,
    RULES,
    RULES_OF_POLLED,
    SOMETIMES,
    UNORDERED,
    VERSIONS_SOMETIMES,
    Known,
    Rule,
    producer_of,
)
from tests.support.recorder import Endpoint

WAITING = "wait"  # the client id of scripts that ask until a state is reached: only the last answer counts

Who = tuple[str, str]  # client, name of the call


@dataclass(slots=True)
class Summary:
    """What one run comes to."""

    versions: defaultdict[Who, set[int]] = field(default_factory=lambda: defaultdict(set))
    sequences: defaultdict[Who, list[Tree]] = field(default_factory=lambda: defaultdict(list))
    shapes: defaultdict[Who, set[str]] = field(default_factory=lambda: defaultdict(set))
    records: defaultdict[Who, dict[str, set[str]]] = field(default_factory=lambda: defaultdict(dict))


class Run:
    """One recorded run; `nodes` says where its clients may find the brokers.

    Clients whose ids begin with one of `free` are driven by their own threads and timers, not by the script: all
    their calls count as polled, clients of one prefix count as one, and records are compared by their order in a
    partition, whichever client read them.
    Topics whose names begin with one of `unordered` are compared as sets of records.
    """

    def __init__(
        self,
        conversations: Sequence[Conversation],
        nodes: Mapping[Endpoint, int],
        *,
        free: Sequence[str] = (),
        unordered: Sequence[str] = (),
    ) -> None:
        self._calls = sorted((call for one in conversations for call in one.calls), key=lambda call: call.at)
        self._nodes = nodes
        self._free = free
        self._unordered = unordered
        self._known = Known()
        for call in self._calls:
            _learn(call.request.body, self._known)
            if call.answer is not None:
                _learn(call.answer.body, self._known)

    def summary(self) -> Summary:
        summary = Summary()
        for call in self._calls:
            self._add(summary, call)
        if self._free:
            for place, log in summary.records.items():
                summary.records[place] = {f"record {number}": log[offset] for number, offset in enumerate(sorted(log))}
        return summary

    def _add(self, summary: Summary, call: Call) -> None:
        client = str(call.client_id)
        prefix = next((prefix for prefix in self._free if client.startswith(prefix)), None)
        who = (client if prefix is None else f"{prefix}*", call.api_name)
        answer = None if call.answer is None else call.answer.body
        if call.api_name == "ApiVersions":
            answer = _announced(answer)
        elif prefix is None or (call.api_name, call.version) not in VERSIONS_SOMETIMES:
            summary.versions[who].add(call.version)
        if client == WAITING:
            summary.sequences[who] = [_Normal(self._nodes, self._known, call.api_name, RULES).tree(answer)]
        elif prefix is not None or call.api_name in POLLED:
            normal = _Normal(self._nodes, self._known, call.api_name, (*RULES, *RULES_OF_POLLED))
            for place, offset, what in _brought(call.api_name, answer, self._known):
                self._add_record(summary, who[0], place, offset, normal.tree(what))
            told = _structs(normal.tree(_without_records(call.api_name, answer)))
            left_out = [] if prefix is None else [one.struct for one in SOMETIMES if one.call == call.api_name]
            summary.shapes[who].update(one for one in told if not any(struct.match(one) for struct in left_out))
        else:
            normal = _Normal(self._nodes, self._known, call.api_name, RULES)
            asked = normal.tree(call.request.body)
            summary.sequences[who].append({"request": asked, "answer": normal.tree(answer)})

    def _add_record(self, summary: Summary, client: str, place: str, offset: str, record: Tree) -> None:
        if not self._free:
            summary.records[client, place].setdefault(offset, set()).add(_text(record))
            return
        if record == "acquired":
            summary.records["anyone", place].setdefault(offset, set()).add(f"{record} {offset}")
        elif not record["control"]:
            # Markers stand where transactions ended, which moves the offsets of all that follows.
            text = _text(record | {"offset": "<offset>"})
            as_set = place.startswith(tuple(self._unordered))
            if not as_set or not any(pattern.match(text) for pattern in RECORDS_SOMETIMES):
                summary.records["anyone", place].setdefault("" if as_set else offset, set()).add(text)


class _Normal:
    """Trees of one call with their volatile values replaced."""

    def __init__(self, nodes: Mapping[Endpoint, int], known: Known, api_name: str, rules: Sequence[Rule]) -> None:
        self._nodes = nodes
        self._known = known
        self._api_name = api_name
        self._rules = {rule.field: rule for rule in rules if not rule.calls or api_name in rule.calls}

    def tree(self, tree: Tree, name: str = "") -> Tree:
        if isinstance(tree, dict):
            return {key: self._value(key, value, tree) for key, value in self._located(tree).items()}
        if isinstance(tree, list):
            items = [self.tree(item, name) for item in tree]
            return sorted(items, key=_text) if (self._api_name, name) in UNORDERED else items
        return tree

    def _value(self, name: str, value: Any, of: Mapping[str, Any]) -> Tree:
        rule = self._rules.get(name)
        if rule is None:
            return self.tree(value, name)
        if isinstance(value, list):
            return [rule.kind(item, of, self._known) for item in value]
        return rule.kind(value, of, self._known)

    def _located(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """A struct with the address of a node by its id: the addresses are the one thing that must differ."""
        if "host" in tree and "port" in tree:
            node = self._nodes.get(Endpoint(tree["host"], tree["port"]))
            if node is not None:
                return {**tree, "host": f"<host of node {node}>", "port": f"<port of node {node}>"}
        return tree


def compare_across(direct: Run, through: Run) -> list[Difference]:
    """Everything in which the run through the gateway differs."""
    one, other = direct.summary(), through.summary()
    differences: list[Difference] = []
    kinds: tuple[tuple[str, Mapping[Who, Any], Mapping[Who, Any]], ...] = (
        ("versions used", one.versions, other.versions),
        ("calls in order", one.sequences, other.sequences),
        ("structs in answers", one.shapes, other.shapes),
        ("records read", one.records, other.records),
    )
    for title, left, right in kinds:
        for who in sorted({*left, *right}):
            was, now = left.get(who), right.get(who)
            if who[1] in OPTIONAL and who[0].endswith("*") and not (was and now):
                continue
            if was != now:
                where = f"{title}: {who[1]} by {who[0]}"
                differences.append(Difference(where, diff_of(_lines(was), _lines(now), "direct", "gateway")))
    return differences


def _announced(answer: Tree | None) -> Tree | None:
    """An answer of ApiVersions as Headgate gives it, whoever gave it.

    Version 5 is not known to a 4.3.1 broker, which makes its clients ask once more in version 4.
    """
    if answer is None or answer["errorCode"] == 35:
        return None
    ranges = {
        one["apiKey"]: ANNOUNCED.get(one["apiKey"], (one["minVersion"], one["maxVersion"])) for one in answer["apiKeys"]
    }
    return answer | {"apiKeys": [{"apiKey": key, "versions": list(value)} for key, value in ranges.items()]}


def _brought(api_name: str, answer: Tree | None, known: Known) -> Iterator[tuple[str, str, Tree]]:
    """What a fetch brought: partition, offset, and the record with what its batch says of it.

    A share group also counts deliveries, so an offset that was acquired twice is there twice.
    """
    if answer is None or api_name not in {"Fetch", "ShareFetch"}:
        return
    for topic in answer["responses"]:
        name = topic.get("topic") or known.topics.get(topic["topicId"], topic["topicId"])
        for partition in topic["partitions"]:
            place = f"{name}-{partition['partitionIndex']}"
            for batch in partition.get("records") or ():
                around = {key: value for key, value in batch.items() if key != "records"}
                for record in batch["records"]:
                    yield place, f"{record['offset']:012}", around | record
            for acquired in partition.get("acquiredRecords") or ():
                for offset in range(acquired["firstOffset"], acquired["lastOffset"] + 1):
                    yield place, f"{offset:012} delivery {acquired['deliveryCount']}", "acquired"


def _without_records(api_name: str, answer: Tree | None) -> Tree | None:
    if answer is None or api_name not in {"Fetch", "ShareFetch"}:
        return answer
    topics = [
        topic
        | {
            "partitions": [
                {key: value for key, value in partition.items() if key not in {"records", "acquiredRecords"}}
                for partition in topic["partitions"]
            ]
        }
        for topic in answer["responses"]
    ]
    return answer | {"responses": topics}


def _structs(tree: Tree, path: str = "") -> Iterator[str]:
    """Every struct of a tree as one line, without the structs inside it, which are lines of their own."""
    if isinstance(tree, list):
        for item in tree:
            yield from _structs(item, path)
    elif isinstance(tree, dict):
        nested = {key: value for key, value in tree.items() if isinstance(value, dict) or _has_structs(value)}
        own = {key: value for key, value in tree.items() if key not in nested and value != []}
        yield f"{path or 'answer'} {_text(own)}"
        for key, value in nested.items():
            yield from _structs(value, f"{path}/{key}")


def _has_structs(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _learn(tree: Tree, known: Known) -> None:
    if isinstance(tree, list):
        for item in tree:
            _learn(item, known)
    elif isinstance(tree, dict):
        topic_id = tree.get("topicId")
        name = tree.get("name") or tree.get("topicName") or tree.get("topic")
        if isinstance(topic_id, str) and isinstance(name, str):
            known.topics.setdefault(topic_id, name)
        producer_id, epoch = producer_of(tree)
        if producer_id >= 0 and epoch >= 0:
            known.first_epochs[producer_id] = min(epoch, known.first_epochs.get(producer_id, epoch))
        for value in tree.values():
            _learn(value, known)


def _text(tree: Tree) -> str:
    return json.dumps(tree, sort_keys=True)


def _lines(value: Any) -> list[str]:
    """One line a struct, version or record, many lines a call: what differs should be all that is seen."""
    if value is None:
        return ["nothing"]
    if isinstance(value, set):
        return [str(one) for one in sorted(value)]
    if isinstance(value, dict):
        return [f"{key} {one}" for key in sorted(value) for one in sorted(value[key])]
    return json.dumps(value, indent=1, sort_keys=True).splitlines()
