"""Pictures of versions and differences; Graphviz reads what is made for it."""

import subprocess

import pytest
from hypothesis import given, settings

from headgate.facts.topology import Description, ProcessorNode, SourceNode, Subtopology
from headgate.topologies.model.topology_diff import diff
from headgate.topologies.model.topology_pictures import picture_of, picture_of_diff, to_dot, to_mermaid
from tests.unit.topologies import topologies
from tests.unit.topologies.topologies import ODD, generated


def assert_graphviz_reads(dot: str) -> str:
    done = subprocess.run(["dot", "-Tplain"], input=dot, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def small(name: str = "p", successors: tuple[str, ...] = ()) -> Description:
    source = SourceNode(name="s", topics=("orders",), successors=("p", *successors))
    return Description(subtopologies=(Subtopology(id="0", nodes=(source, ProcessorNode(name=name, stores=("t",)))),))


def test_a_version_in_mermaid() -> None:
    assert to_mermaid(picture_of(small())).splitlines() == [
        "flowchart LR",
        '  subgraph s0 ["Sub-topology 0"]',
        '    n0["p"]',
        '    n1["s"]',
        "  end",
        '  n2[("t")]',
        '  n3(["orders"])',
        "  n0 --> n2",
        "  n3 --> n1",
        "  n1 --> n0",
    ]


def test_a_version_in_dot() -> None:
    dot = to_dot(picture_of(small()))
    assert '    n0 [label="p"];' in dot
    assert '  n2 [label="t", shape=cylinder];' in dot
    assert "  n1 -> n0;" in dot
    assert_graphviz_reads(dot)


def test_a_difference_marks_what_is_added_removed_and_renamed() -> None:
    found = diff(generated("orders-unnamed"), generated("orders-v1"))
    dot = to_dot(picture_of_diff(found))
    assert 'label="KSTREAM-KEY-SELECT-0000000021 → by-product", color="#1565c0"' in dot
    assert_graphviz_reads(dot)
    gone = to_mermaid(picture_of_diff(diff(generated("orders-v1"), generated("orders-store-gone"))))
    assert '["KSTREAM-REDUCE-0000000017"]:::removed' in gone
    assert "Removed from sub-topology 0" in gone
    fresh = to_mermaid(picture_of_diff(diff(generated("orders-v1"), generated("orders-operator-in-front"))))
    assert '["KSTREAM-PEEK-0000000001"]:::added' in fresh
    assert fresh.count("==>") == 2
    assert fresh.count("-.->") == 1


@pytest.mark.parametrize("name", [*ODD, '"]; n9 [label="x', "\\", "#lt;script>", "`a`", "<b>&amp;</b>", "a;b"])
def test_a_hostile_name_stays_a_label(name: str) -> None:
    description = small(name, (name,))
    assert_graphviz_reads(to_dot(picture_of(description)))
    mermaid = to_mermaid(picture_of(description))
    label = mermaid.splitlines()[3 if name > "s" else 2].split('"', 1)[1]
    assert label.endswith('"]')
    assert not set(label[:-2]) & set('"<>&`\\')
    assert len(label) < 1000


@settings(max_examples=30)
@given(topologies.descriptions(), topologies.descriptions())
def test_no_description_whatever_raises(before: Description, after: Description) -> None:
    picture = picture_of_diff(diff(before, after))
    assert to_dot(picture).count("\n") == len(to_dot(picture).splitlines())
    assert to_mermaid(picture).startswith("flowchart LR\n")
