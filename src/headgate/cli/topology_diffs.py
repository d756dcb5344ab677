"""`headgate topology diff A B`: what changed between two versions of a topology, and whether B can take over from A.

A and B are files with a text of `Topology#describe()`, or GROUP@VERSION for a version that is kept. An existing file
counts first. With a gateway's configuration the numbers of partitions of the topics that are read come from its
cluster, as far as the service account may describe them. Exit codes: 0 no difference, 1 a difference or a failure, 2
usage.
"""

import argparse
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.base.errors import UsageError
from headgate.cli.escaping import escaped
from headgate.cli.topology_files import read_topology
from headgate.cli.topology_versions import add_formats, print_format, version_of
from headgate.config import load
from headgate.facts.topology import Description
from headgate.kafka.topics import client_settings, list_topics
from headgate.topologies.model.compatibility import Compatibility, Verdict, diff_document, judge_compatibility
from headgate.topologies.model.topology_diff import TopologyDiff, diff
from headgate.topologies.model.topology_pictures import picture_of_diff

_VERDICTS = {
    Verdict.SAFE: "safe to roll",
    Verdict.RESET: "needs a reset",
    Verdict.STATE_LOST: "state is lost",
}


# argparse gives the type of add_subparsers() no public name.
def add_action(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "diff",
        help="compare two versions of a topology",
        description="Compare two versions of a topology. A and B are files with a text of Topology#describe(), or "
        "GROUP@VERSION, where VERSION may also be latest or previous. Exit code 1 if they differ.",
    )
    parser.add_argument("before", metavar="A", help="the older version")
    parser.add_argument("after", metavar="B", help="the newer version")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the gateway's TOML file, for GROUP@VERSION")
    parser.add_argument(
        "--partitions",
        action="append",
        default=[],
        metavar="TOPIC=N",
        help="the number of partitions of a topic, if --config does not give the cluster; repeat for more topics",
    )
    add_formats(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class _Side:
    """A version that is compared; the application id is known of one that is kept."""

    description: Description
    application: str | None


def run(args: argparse.Namespace) -> int:
    given = dict(map(_partition_count, args.partitions))
    before, after = (_side(name, args.config) for name in (args.before, args.after))
    found = diff(
        before.description,
        after.description,
        before_application=before.application,
        after_application=after.application,
    )
    known = {} if args.config is None else cluster_partitions(args.config, found)
    compatibility = judge_compatibility(found, {**known, **given})
    print_format(
        args,
        lambda: diff_text(found, compatibility),
        lambda: diff_document(found, compatibility),
        lambda: picture_of_diff(found),
    )
    return 0 if found.is_empty else 1


def _side(name: str, config: Path | None) -> _Side:
    group, at, version = name.rpartition("@")
    if name == "-" or not at or Path(name).exists():
        return _Side(read_topology(name), None)
    if config is None:
        raise UsageError(f"{name} is no file; for a version that is kept, --config names the gateway's TOML file")
    return _Side(version_of(group, version, config).fact.description, group)


def cluster_partitions(config: Path, found: TopologyDiff) -> dict[str, int]:
    """The numbers of partitions of the topics that either version reads and that exist."""
    read = {topic for node in (*found.before, *found.after) if node.kind == "source" for topic in node.topics}
    existing = list_topics(client_settings(load(config, os.environ).upstream)).topics
    return {topic: len(existing[topic]) for topic in read if existing.get(topic)}


def _partition_count(words: str) -> tuple[str, int]:
    topic, _, count = words.partition("=")
    if not topic or not (count.isascii() and count.isdecimal() and 0 < len(count) < 8 and int(count)):
        raise UsageError(f"--partitions {escaped(words)}: write TOPIC=N with a number from 1")
    return topic, int(count)


def diff_text(found: TopologyDiff, compatibility: Compatibility) -> str:
    """Names are escaped: clients choose them."""
    lines = [
        *_section("Added", (f"{one.kind} {one.name} in {_place(one.subtopology)}" for one in found.added)),
        *_section("Removed", (f"{one.kind} {one.name} from {_place(one.subtopology)}" for one in found.removed)),
        *_section("Renamed", (f"{one.kind} {one.before} to {one.after}" for one in found.renamed)),
        *_section(
            "Moved",
            (f"{one.kind} {one.name} from {_place(one.before)} to {_place(one.after)}" for one in found.moved),
        ),
        *_section(
            "Changed",
            (
                f"{one.kind} {one.name}: {one.field} {_names(one.before)} to {_names(one.after)}"
                for one in found.changed
            ),
        ),
    ]
    if found.renumbered:
        lines.append(f"Renumbered: {found.renumbered}")
    if found.is_empty:
        lines.append("The topologies are the same.")
    lines += ["", f"Verdict: {_VERDICTS[compatibility.verdict]}"]
    lines += [f"  {escaped(reason.text)}" for reason in compatibility.reasons]
    return "\n".join(lines) + "\n"


def _section(title: str, items: Iterable[str]) -> Iterator[str]:
    shown = [f"  {escaped(item)}" for item in items]
    if shown:
        yield f"{title}:"
        yield from shown


def _place(subtopology: str) -> str:
    return "a global store" if subtopology == "global" else f"sub-topology {subtopology}"


def _names(names: tuple[str, ...]) -> str:
    return f"[{', '.join(names)}]"
