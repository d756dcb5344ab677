"""`headgate dlq triage`: why records became dead letters, and what to do next, from the tables.

The text is for an operator in the middle of an incident: the verdict first, the numbers behind it, one action, and the
command for it.
"""

import argparse
import json
import shlex
import time
from typing import Any, Final

from headgate.cli.escaping import escaped
from headgate.cli.row_text import local_time, parse_time, print_error
from headgate.cli.table_places import root_of
from headgate.dead_letters.triage import Document, TriageTables

_VERDICTS: Final = {
    "outage": "the downstream of the group failed, for most members at once",
    "content": "records with {feature} fail, all others work",
    "member": "the member {member} fails, all others work",
    "poison": "single records fail whatever is tried, all others work",
    "mixed": "several causes, or none that is clear",
    "insufficient": "too few attempts to tell",
}
_ACTIONS: Final = {
    "replay_now": "the group works again: replay these records",
    "fix_first": "correct the producer or the consumer of these records first, then replay them",
    "quarantine": "leave these records in the dead-letter topic and examine them: a replay would fail again",
    "restart_member": "restart or remove this member, then replay the records",
    "resume_and_watch": "when the downstream works, resume the group, watch it, and run triage again",
}
_WATCH: Final = "the group is not paused: watch it while you look for the cause, and run triage again"
_PERCENT: Final = 100


def run(args: argparse.Namespace) -> int:
    since_ms = None if args.since is None else parse_time("--since", args.since)
    now_ms = time.time_ns() // 1_000_000
    tables = TriageTables(root_of(args))
    try:
        document = tables.triage(now_ms=now_ms, group=args.group, since_ms=since_ms, cluster_id=args.cluster_id)
    finally:
        tables.close()
    if args.json:
        print(json.dumps(document))
        return 0
    print_triage(document)
    if not document["clusters"] and not document["unassigned"]:
        print_error("there are no dead letters" + (f" of {escaped(args.group)}" if args.group else ""))
        return 1
    return 0


def print_triage(document: Document) -> None:
    """The episodes, the newest first, and the dead letters that belong to none."""
    for number, cluster in enumerate(document["clusters"]):
        if number:
            print()
        _print_cluster(cluster)
    for group, counts in document["unassigned"].items():
        name = escaped(group) or "letters that name no group"
        print(f"{name}: {counts['letters']} dead letters belong to no episode, {_readable(counts)}")
    if document["truncated"]:
        print_error("there are more episodes: use --group or --since")


def _print_cluster(cluster: Document) -> None:
    culprit = {name: escaped(cluster[name] or "") for name in ("feature", "member")}
    ended = "still lasts" if cluster["ended_at"] is None else f"ended {_time(cluster['ended_at'])}"
    print(
        f"{escaped(cluster['group'])}  {cluster['verdict'].upper()}: {_VERDICTS[cluster['verdict']].format(**culprit)}"
    )
    topics = ", ".join(map(escaped, cluster["topics"])) or "unknown"
    print(f"  episode   {cluster['id']}, began {_time(cluster['first_at'])}, {ended}")
    print(f"  records   {cluster['count']} dead letters of {topics}; {_readable(cluster['records'])}")
    for line in _evidence(cluster["evidence"]):
        print(f"  evidence  {line}")
    if warning := _expiry(cluster["records"]):
        print(f"  WARNING   {warning}")
    print(f"  action    {cluster['action']}: {_action(cluster)}")
    print(f"  next      {_next_command(cluster)}")


def _readable(records: Document) -> str:
    texts = {
        "readable": "can be replayed",
        "gone": "are gone at their source and not copied",
        "unknown": "are not known: the service account has no READ on the source, or has not read it yet",
        "unplannable": "do not identify their record, so that no plan replays them",
        "problems": "have headers that are not right",
    }
    return ", ".join(f"{records[name]} {text}" for name, text in texts.items() if records[name] or name == "readable")


def _evidence(evidence: Document) -> list[str]:
    attempts = _rate(evidence["attempts"])
    base = f"{evidence['base_rate'] * _PERCENT:.2g} %"
    lines = [f"{attempts} failed, usually {base}; the worst 5 s: {_rate(evidence['worst_bucket'])}"]
    if members := evidence["worst_members"]:
        worst = members[0]
        head = "the only member" if evidence["members"] == 1 else f"worst of {evidence['members']} members"
        lines.append(f"{head} {escaped(worst['member'])}: {_rate(worst)}{_others(evidence.get('other_members'))}")
    if features := evidence["worst_features"]:
        line = f"most failures with {escaped(features[0]['feature'])}: {_rate(features[0])} of the sampled records"
        lines.append(line + _others(evidence.get("other_records")))
    if (others := evidence.get("attempts_of_others")) and others["attempts"]:
        lines.append(f"attempts of other records: {_rate(others)} failed")
    if left_out := evidence.get("dead_letters_left_out"):
        lines.append(f"{left_out} older dead letters of the group were too many to be compared")
    if evidence["paused_ms"]:
        lines.append(f"the group was paused for {evidence['paused_ms'] // 1000} s of it, which is no sign of recovery")
    return lines


def _others(figures: Document | None) -> str:
    """Empty where there are no others: their share of failures would be between 0 and 100 %."""
    return f"; all others: {_rate(figures)}" if figures and figures["attempts"] else ""


def _rate(figures: Document) -> str:
    lower, upper = (round(figures[name] * _PERCENT) for name in ("lower", "upper"))
    return f"{figures['failed']} of {figures['attempts']} ({lower} to {upper} %)"


def _expiry(records: Document) -> str | None:
    if not records["expire_soon"]:
        return None
    return (
        f"{records['expire_soon']} records expire within 24 hours, the first at {_time(records['next_expiry'])}: "
        "replay them or raise retention.ms before that"
    )


def _action(cluster: Document) -> str:
    needs_resume = cluster["action"] == "resume_and_watch"
    return _WATCH if needs_resume and not cluster["paused"] else _ACTIONS[cluster["action"]]


def _next_command(cluster: Document) -> str:
    group, episode = shlex.quote(escaped(cluster["group"])), cluster["id"]
    match cluster["action"]:
        case "replay_now" | "fix_first" | "restart_member":
            return f"headgate dlq plan --group {group} --cluster {episode} --to original --config FILE"
        case "quarantine":
            where = shlex.quote(f"cluster={episode}")
            columns = "--columns topic,partition,offset,reason,key_hash"
            return f"headgate tables show dead_letters --where {where} {columns} --config FILE"
        case _:
            what = "--resume" if cluster["paused"] else "--describe"
            more = "--reason REASON" if cluster["paused"] else "--circuit-breaker"
            return f"headgate share-groups --bootstrap-server HOST:PORT {what} --group {group} {more}"


def _time(at: Any) -> str:
    return local_time(at, "milliseconds") if isinstance(at, int) else "-"
