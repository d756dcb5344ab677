"""The output of `headgate streams-groups`: the text of Kafka's own tool, and JSON.

The text is that of `kafka-streams-groups.sh` to the letter, except that rows are sorted and control characters escaped.

A version is written incarnation/epoch/hash. A describe does not carry the incarnation, so that part is `-` here; the
hash is the first twelve digits of the content hash. Without a description, version and provenance are null.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from headgate.cli.columns import NAME_WIDTH, or_dash, table, widest
from headgate.cli.escaping import escaped
from headgate.facts.topology import DESCRIPTION, Description, content_hash
from headgate.kafka.group_admin import DEAD, EMPTY, GroupCoordinator, GroupError, GroupListing, TopologyStatus
from headgate.topologies.group_offsets import PartitionOffsets
from headgate.topologies.model.topology_text import fetch_failed_text, not_stored_text, render
from headgate.wire.messages.streams import Assignment, DescribedStreamsGroup, StreamsGroupMember, TaskIds

_COORDINATOR_WIDTH = 25
_HASH_DIGITS = 12
_UNKNOWN = "-"


def names_text(listings: Iterable[GroupListing]) -> str:
    return "".join(f"{escaped(listing.group)}\n" for listing in listings)


def states_text(listings: Sequence[GroupListing]) -> str:
    rows = [("GROUP", "STATE"), *((escaped(listing.group), listing.state) for listing in listings)]
    return table(rows, [widest(rows, 0)])


def listings_json(listings: Iterable[GroupListing]) -> dict[str, Any]:
    return {"groups": [{"group": listing.group, "state": listing.state} for listing in listings]}


def offsets_text(group: DescribedStreamsGroup, offsets: Iterable[PartitionOffsets], *, verbose: bool) -> str:
    name = escaped(group.group_id)
    if not verbose:
        rows = [("GROUP", "TOPIC", "PARTITION", "OFFSET-LAG")]
        rows += [(name, escaped(one.topic), str(one.partition), str(one.lag)) for one in offsets]
        return table(rows, [widest(rows, 0), widest(rows, 1), 10])
    wide = [("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG")]
    wide += [
        (
            name,
            escaped(one.topic),
            str(one.partition),
            or_dash(one.current_offset),
            or_dash(one.leader_epoch),
            str(one.log_end_offset),
            str(one.lag),
        )
        for one in offsets
    ]
    return table(wide, [widest(wide, 0), widest(wide, 1), 10, 15, 15, 15, 15])


def offsets_json(group: DescribedStreamsGroup, offsets: Iterable[PartitionOffsets]) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.group_state,
        "offsets": [asdict(one) for one in offsets],
    }


def members_text(group: DescribedStreamsGroup, *, verbose: bool) -> str:
    """The tool leaves out the space before MEMBER when it is verbose, and so does this."""
    name = escaped(group.group_id)
    if not verbose:
        rows = [("GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS")]
        rows += [(name, *_member_names(member), _tasks(member.assignment)) for member in group.members]
        return table(rows, [widest(rows, place) for place in range(4)])
    topology_epoch = "" if group.topology is None else str(group.topology.epoch)
    wide = [
        (
            "GROUP",
            "TARGET-ASSIGNMENT-EPOCH",
            f"{'TOPOLOGY-EPOCH':<15}MEMBER",
            "MEMBER-PROTOCOL",
            "MEMBER-EPOCH",
            "PROCESS",
            "CLIENT-ID",
            "ASSIGNMENTS",
        )
    ]
    for member in group.members:
        member_id, process, client_id = _member_names(member)
        wide.append(
            (
                name,
                str(group.assignment_epoch),
                f"{topology_epoch:<15}{member_id}",
                "classic" if member.is_classic else "streams",
                str(member.member_epoch),
                process,
                client_id,
                _tasks(member.assignment) + _tasks(member.target_assignment, "TARGET-"),
            )
        )
    member_width = max(2 * NAME_WIDTH, widest(wide, 2))
    return table(wide, [widest(wide, 0), 25, member_width, 15, 15, widest(wide, 5), widest(wide, 6)])


def _member_names(member: StreamsGroupMember) -> tuple[str, str, str]:
    return escaped(member.member_id), escaped(member.process_id), escaped(member.client_id)


def _tasks(assignment: Assignment, prefix: str = "") -> str:
    kinds = {
        "ACTIVE": assignment.active_tasks,
        "STANDBY": assignment.standby_tasks,
        "WARMUP": assignment.warmup_tasks,
    }
    return "".join(f"{prefix}{kind}: {_task_ids(tasks)}" for kind, tasks in kinds.items() if tasks)


def _task_ids(tasks: Iterable[TaskIds]) -> str:
    return "".join(f"{escaped(one.subtopology_id)}:[{','.join(map(str, one.partitions))}]; " for one in tasks)


def members_json(group: DescribedStreamsGroup) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.group_state,
        "members": [
            {
                "member": member.member_id,
                "process": member.process_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "member_epoch": member.member_epoch,
                "topology_epoch": member.topology_epoch,
                "assignment": _assignment_json(member.assignment),
                "target_assignment": _assignment_json(member.target_assignment),
            }
            for member in group.members
        ],
    }


def _assignment_json(assignment: Assignment) -> dict[str, Any]:
    def of(tasks: Iterable[TaskIds]) -> list[dict[str, Any]]:
        return [{"subtopology": one.subtopology_id, "partitions": list(one.partitions)} for one in tasks]

    return {
        "active": of(assignment.active_tasks),
        "standby": of(assignment.standby_tasks),
        "warmup": of(assignment.warmup_tasks),
    }


def state_text(group: DescribedStreamsGroup, coordinator: GroupCoordinator, *, verbose: bool) -> str:
    name, state, members = escaped(group.group_id), escaped(group.group_state), str(len(group.members))
    where = f"{escaped(coordinator.address.host)}:{coordinator.address.port} ({coordinator.node})"
    if not verbose:
        rows = [("GROUP", "COORDINATOR (ID)", "STATE", "#MEMBERS"), (name, where, state, members)]
        shown = table(rows, [widest(rows, 0), widest(rows, 1, _COORDINATOR_WIDTH), 25])
    else:
        epochs = str(group.group_epoch), str(group.assignment_epoch)
        wide = [
            ("GROUP", "COORDINATOR (ID)", "STATE", "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"),
            (name, where, state, *epochs, members),
        ]
        shown = table(wide, [widest(wide, 0), widest(wide, 1, _COORDINATOR_WIDTH), 25, 15, 25])
    warning = no_members_text(group)
    return f"\nError: {warning}\n{shown}" if warning else shown


def state_json(group: DescribedStreamsGroup, coordinator: GroupCoordinator) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.group_state,
        "coordinator": str(coordinator.address),
        "coordinator_id": coordinator.node,
        "group_epoch": group.group_epoch,
        "target_assignment_epoch": group.assignment_epoch,
        "topology_epoch": None if group.topology is None else group.topology.epoch,
        "members": len(group.members),
    }


def no_members_text(group: DescribedStreamsGroup) -> str | None:
    """The text of the tool for a group without members; None for a group with members."""
    words = {DEAD: "does not exist.", EMPTY: "has no active members."}.get(group.group_state)
    return None if words is None else f"Streams group '{escaped(group.group_id)}' {words}"


def topology_text(group: str, status: TopologyStatus, description: Description | None) -> str:
    """The topology, or why there is none, in the words of the tool."""
    if description is not None:
        return "\n".join(map(escaped, render(description).split("\n")))
    failed = status is TopologyStatus.ERROR
    return f"{fetch_failed_text(escaped(group)) if failed else not_stored_text(escaped(group))}\n"


def topology_json(
    group: DescribedStreamsGroup, status: TopologyStatus, description: Description | None
) -> dict[str, Any]:
    epoch = None if group.topology is None else group.topology.epoch
    shown = description is not None
    return {
        "group": group.group_id,
        "status": status.name,
        "topology_epoch": epoch,
        "version": version(epoch, description) if description is not None else None,
        "provenance": "pushed" if shown else None,
        "description": DESCRIPTION.write(description) if description is not None else None,
    }


def version(epoch: int | None, description: Description) -> str:
    """`-/EPOCH/HASH`: the incarnation is not known here (see above)."""
    digits = content_hash(description).removeprefix("sha256:")[:_HASH_DIGITS]
    return f"{_UNKNOWN}/{or_dash(epoch)}/{digits}"


def deletion_text(group: str, failure: GroupError | None) -> str:
    name = escaped(group)
    if failure is None:
        return f"Deletion of requested streams groups ('{name}') was successful.\n"
    return (
        "\nError: Deletion of some streams groups failed:\n"
        f"* Group '{name}' could not be deleted due to: {escaped(failure.text)}\n"
    )


def deletion_json(group: str, failure: GroupError | None) -> dict[str, Any]:
    if failure is None:
        return {"group": group, "deleted": True}
    return {"group": group, "deleted": False, "error_code": failure.code, "error": failure.text}
