"""A captured answer of a real 4.3.1 broker holds the layout of StreamsGroupDescribeResponse v0.

The fields file lists what the published layout of that version has, in wire order; the hex file is the capture.
"""

import struct
from pathlib import Path

from headgate.wire.codec import decode, encode
from headgate.wire.messages.streams import Assignment, StreamsGroupDescribeResponse, TaskIds
from headgate.wire.schema import ArrayOf, Scalar, Struct
from tests.support.oracle import Oracle
from tests.support.trees import kafka_name, tree_of

FIXTURES = Path(__file__).parents[1] / "fixtures"


def captured() -> bytes:
    lines = (FIXTURES / "streams_group_describe_v0.hex").read_text().splitlines()
    return bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def opened() -> StreamsGroupDescribeResponse:
    frame = captured()
    assert struct.unpack_from(">iib", frame) == (len(frame) - 4, 7, 0)  # size, correlation id, no tags
    return decode(StreamsGroupDescribeResponse, 0, frame, 9)


def lines_of(cls: type[Struct], version: int, indent: str = "") -> list[str]:
    """The table in the form of the fields file."""
    lines = []
    for spec in cls.layout.fields:
        if version in spec.versions:
            element = spec.type.element if isinstance(spec.type, ArrayOf) else spec.type
            kind = element.name if isinstance(element, Scalar) else "struct"
            name = kafka_name(spec.name)
            array, null = "[]" * isinstance(spec.type, ArrayOf), "?" * (version in spec.nullable)
            lines.append(f"{indent}{name[0].upper()}{name[1:]} {array}{kind}{null}")
            if isinstance(element, type):
                lines += lines_of(element, version, indent + "  ")
    return lines


def test_the_fields_are_those_of_the_published_layout_in_order() -> None:
    published = (FIXTURES / "streams_group_describe_v0.fields").read_text().splitlines()
    assert lines_of(StreamsGroupDescribeResponse, 0) == published


def test_the_capture_is_written_again_byte_for_byte() -> None:
    assert captured()[:9] + encode(opened(), 0) == captured()


def test_the_capture_says_what_the_cluster_was_made_to_do() -> None:
    words, nobody = opened().groups
    assert (words.group_id, words.group_state, words.topology and words.topology.epoch) == (
        "golden-word-count",
        "Stable",
        0,
    )
    assert {each.user_endpoint.port for each in words.members if each.user_endpoint} == {7071, 7072}
    assert {each.client_tags[0].value for each in words.members} == {"z1", "z2"}
    assert Assignment(
        active_tasks=(TaskIds(subtopology_id="0", partitions=(0,)), TaskIds(subtopology_id="1", partitions=(0,))),
        standby_tasks=(TaskIds(subtopology_id="1", partitions=(1,)),),
    ) in [each.assignment for each in words.members]
    assert (nobody.error_code, nobody.error_message) == (69, "Group golden-nobody not found.")


def test_kafka_reads_the_capture_as_we_do(oracle: Oracle) -> None:
    decoded = oracle.decode("response", 89, 0, captured()[4:], header=True)
    assert decoded["tree"] == tree_of(opened(), 0)
