"""Versions of topologies as the tables have them: their names, the one that is asked for, and what a caller may see.

A version is named INCARNATION/EPOCH/HASH, with the first twelve digits of the content hash, as in the output of
`headgate topology versions`.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import HTTPException

from headgate.facts.json_form import loads
from headgate.facts.topology import DESCRIPTION, Description
from headgate.tables.definitions import TABLES, VERSION_KEY
from headgate.tables.reader import Condition
from headgate.web.api.estate_tables import EstateTables
from headgate.web.visible_names import VisibleNames

HIDDEN_TOPIC: Final = "(hidden)"
MAX_VERSIONS: Final = 1_000
_HASH_DIGITS: Final = 12
_TABLE: Final = TABLES["topology_versions"]
_COLUMNS: Final = tuple(name for name in _TABLE.columns.names if name != "description")
_PARTIAL: Final = "assignment"

Row = dict[str, Any]


def version_name(row: Row) -> str:
    digits: str = row["hash"].removeprefix("sha256:")
    return f"{row['incarnation']}/{row['epoch']}/{digits[:_HASH_DIGITS]}"


def read_versions(tables: EstateTables, cluster: str, application: str) -> tuple[list[Row], bool]:
    """The versions of an application without their descriptions, the newest first, and whether there are more."""
    where = [Condition("cluster_id", "=", cluster), Condition("app_id", "=", application)]
    found = tables.reader.rows(_TABLE, where=where, columns=_COLUMNS, limit=MAX_VERSIONS)
    rows = sorted(found.rows, key=lambda row: (row["valid_to"] is not None, -row["valid_from"], version_name(row)))
    return rows, found.more


def select_version(rows: Sequence[Row], wanted: str) -> Row:
    """`latest`, `previous`, a name, or the beginning of a hash; 404 if there is none."""
    if wanted in {"latest", "previous"}:
        place = ("latest", "previous").index(wanted)
        if place < len(rows):
            return rows[place]
    for row in rows:
        if wanted == version_name(row):
            return row
    digits = wanted.removeprefix("sha256:")
    found = [row for row in rows if digits and row["hash"].removeprefix("sha256:").startswith(digits)]
    if len({row["hash"] for row in found}) == 1:
        return found[0]
    problem = "several versions begin so" if found else "the application has no such version"
    raise HTTPException(HTTPStatus.NOT_FOUND, f"Version {wanted!r}: {problem}")


def read_description(tables: EstateTables, row: Row, names: VisibleNames) -> Description:
    """The description of a version, with topics that the caller may not see as `(hidden)`."""
    where = [Condition(name, "=", row[name]) for name in VERSION_KEY]
    found = tables.reader.rows(_TABLE, where=where, columns=("description",), limit=1)
    if not found.rows:
        raise HTTPException(HTTPStatus.NOT_FOUND, "The version does not exist any more")
    document = loads(found.rows[0]["description"].encode())
    if names.are_limited:
        mask_topics(document, names)
    read: Description = DESCRIPTION.read(document, "description")
    return read


def mask_topics(document: Any, names: VisibleNames) -> None:
    """Replace names of topics in the JSON of a description; other names are the application's own."""
    nodes = [node for part in document["subtopologies"] for node in part["nodes"]]
    nodes += [store[part] for store in document["global_stores"] for part in ("source", "processor")]
    for node in nodes:
        if isinstance(node.get("topics"), list):
            node["topics"] = [one if names.has(one) else HIDDEN_TOPIC for one in node["topics"]]
        for single in ("topic", "pattern"):
            if isinstance(node.get(single), str) and not names.has(node[single]):
                node[single] = HIDDEN_TOPIC


def version_document(row: Row) -> Row:
    return {
        "version": version_name(row),
        "incarnation": row["incarnation"],
        "topology_epoch": row["epoch"],
        "hash": row["hash"],
        "provenance": row["provenance"],
        "partial": row["provenance"] == _PARTIAL,
        "current": row["valid_to"] is None,
        "at": row["at"],
        "ended_at": row["ended_at"],
        "member": row["member"],
        "process": row["process"],
        "subtopologies": row["subtopologies"],
        "nodes": row["nodes"],
        "global_stores": row["global_stores"],
    }
