"""`python -m bench.topology_texts`: how long it takes to parse texts and to compare versions, as markdown tables.

Neither needs a broker. Each figure is the CPU time of one call, the median of several rounds, for growing sizes. The
targets are 0.5 s for a text of 10,000 nodes and 1 s for two versions of 2,000 nodes.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from bench import machine
from bench.topologies import application
from headgate.facts.topology import Description, ProcessorNode, SourceNode, Subtopology
from headgate.topologies.model.compatibility import judge_compatibility
from headgate.topologies.model.topology_diff import diff
from headgate.topologies.model.topology_parser import parse
from headgate.topologies.model.topology_text import render

PARSED, COMPARED = (2_500, 5_000, 10_000, 20_000, 40_000), (500, 1_000, 2_000, 4_000, 8_000)


def without_some(description: Description) -> Description:
    """A version in which one node of each sub-topology is gone."""
    parts = tuple(replace(part, nodes=part.nodes[:10] + part.nodes[11:]) for part in description.subtopologies)
    return replace(description, subtopologies=parts)


def chain(nodes: int, first: int) -> Description:
    """Operators of one kind in a row, the most alike that nodes can be; `first` is the number of the first."""
    names = [f"KSTREAM-MAPVALUES-{number:010d}" for number in range(first, first + nodes)]
    source = SourceNode(name="KSTREAM-SOURCE-0000000000", topics=("orders",), successors=(names[0],))
    following = [(name,) for name in names[1:]] + [()]
    operators = (ProcessorNode(name=name, successors=after) for name, after in zip(names, following, strict=True))
    return Description(subtopologies=(Subtopology(id="0", nodes=(source, *operators)),))


def middle_s(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return statistics.median(times)


def compare(before: Description, after: Description) -> None:
    judge_compatibility(diff(before, after))


def rows(rounds: int) -> Iterator[str]:
    yield "| nodes | text | parsed |"
    yield "|---:|---:|---:|"
    for nodes in PARSED:
        text = render(application("app", nodes))
        yield f"| {nodes} | {len(text) / 1024:.0f} KiB | {middle_s(partial(parse, text), rounds):.3f} s |"
    yield ""
    yield "| nodes of a version | one node of fifty gone | nothing in common | one operator in front of equal ones |"
    yield "|---:|---:|---:|---:|"
    for nodes in COMPARED:
        one = application("app", nodes)
        pairs = ((one, without_some(one)), (one, application("other", nodes)), (chain(nodes, 1), chain(nodes + 1, 1)))
        times = [f"{middle_s(partial(compare, *pair), rounds):.3f} s" for pair in pairs]
        yield f"| {nodes} | {' | '.join(times)} |"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.topology_texts", description="Texts and differences.")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(given)
    facts = machine.facts()
    print(", ".join(f"{name} {facts[name]}" for name in ("headgate", "Python", "processor", "memory")))
    print()
    for row in rows(args.rounds):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
