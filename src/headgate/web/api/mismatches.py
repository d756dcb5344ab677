"""Members of one application that run different topologies: open mismatches, with the members and hosts of each side.

That a mismatch is open is in `lineage_gaps`; who runs what is in the last event of it, in `changes`.
"""

from typing import Any, Final

from headgate.lineage.estate import Estate, NoTableError
from headgate.tables.reader import Condition
from headgate.web.api.changes import parsed_detail

_EVENT: Final = "topology_mismatch"
MOST_SIDES: Final = 10
MOST_MEMBERS: Final = 20  # of one side

Row = dict[str, Any]


def open_mismatches(estate: Estate, *, application: str | None = None) -> dict[str, Row]:
    """The open mismatch of each application; `topologies` is empty where its event is not in the table any more."""
    of_one = [] if application is None else [Condition("app_id", "=", application)]
    where = (Condition("kind", "=", "mismatch"), Condition("state", "=", "open"), *of_one)
    opened: dict[str, Row] = {}
    for row in estate.of_one_cluster(estate.rows("lineage_gaps", *where)):
        detail = _object(parsed_detail(row["detail"]))
        found = {"since": row["opened_at"], "kind": _text(detail, "kind"), "topology_count": _count(detail)}
        opened[row["app_id"]] = found | {"topologies": []}
    if opened:
        _add_sides(estate, opened, application)
    return opened


def _add_sides(estate: Estate, opened: dict[str, Row], application: str | None) -> None:
    since = min(row["since"] for row in opened.values())
    of_one = [] if application is None else [Condition("subject", "=", application)]
    where = (Condition("event", "=", _EVENT), Condition("at", ">=", since), *of_one)
    last: dict[str, int] = {}
    columns = ("cluster_id", "subject", "at", "detail")
    try:
        rows = estate.rows("changes", *where, columns=columns)
    except NoTableError:
        return
    for row in estate.of_one_cluster(rows):
        name, at = row["subject"], row["at"]
        if name not in opened or at < max(opened[name]["since"], last.get(name, 0)):
            continue
        detail = _object(parsed_detail(row["detail"]))
        if detail.get("state") == "open":
            last[name] = at
            opened[name] |= {
                "kind": _text(detail, "kind"),
                "topology_count": _count(detail),
                "topologies": [_side(one) for one in _list(detail, "topologies")[:MOST_SIDES]],
            }


def _side(detail: Any) -> Row:
    side = _object(detail)
    members = [
        {"member": _text(_object(one), "member"), "host": _text(_object(one), "host")}
        for one in _list(side, "members")[:MOST_MEMBERS]
    ]
    count = side.get("member_count")
    return {
        "fingerprint": _text(side, "fingerprint"),
        "refused": side.get("refused") is True,
        "member_count": count if isinstance(count, int) else len(members),
        "members": members,
    }


def _object(found: Any) -> Row:
    return found if isinstance(found, dict) else {}


def _list(found: Row, name: str) -> list[Any]:
    listed = found.get(name)
    return listed if isinstance(listed, list) else []


def _text(found: Row, name: str) -> str | None:
    value = found.get(name)
    return value if isinstance(value, str) else None


def _count(found: Row) -> int | None:
    value = found.get("topology_count")
    return value if isinstance(value, int) else None
