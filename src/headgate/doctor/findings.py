"""What the doctor says: one finding a question, with its verdict and the line that mends it.

One rule: what is not in order says how to put it in order. A mend is a command to paste, a key of the configuration
with its value, or, where neither exists, what to do on which machine.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Verdict(enum.Enum):
    """`WARNING`: works, or cannot be found out, but somebody should look. `PROBLEM`: does not work."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(enum.Enum):
    """What a finding is about, in the order in which the doctor asks."""

    CONFIGURATION = "configuration"
    MACHINE = "machine"  # ports, names and limits on this side
    UPSTREAM = "upstream"  # each address: resolves, connects, TLS, SASL
    CERTIFICATES = "certificates"  # our own files, and what brokers show
    CLUSTER = "cluster"  # one cluster, and its nodes against gateway.nodes
    VERSIONS = "versions"  # calls that features need
    RIGHTS = "rights"  # of the service account
    TOPICS = "topics"  # Headgate's own
    SHARE_GROUPS = "share groups"  # the rights beyond the prefix that dead letters need, and their topics
    CLOCK = "clock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A verdict on `subject` (an address, a topic, a right, a file); `mend` is empty when all is well."""

    verdict: Verdict
    check: Check
    subject: str
    text: str
    mend: str = ""

    def __post_init__(self) -> None:
        assert bool(self.mend) == (self.verdict is not Verdict.OK), self


def ok(check: Check, subject: str, text: str) -> Finding:
    return Finding(verdict=Verdict.OK, check=check, subject=subject, text=text)


def warning(check: Check, subject: str, text: str, *, mend: str) -> Finding:
    return Finding(verdict=Verdict.WARNING, check=check, subject=subject, text=text, mend=mend)


def problem(check: Check, subject: str, text: str, *, mend: str) -> Finding:
    return Finding(verdict=Verdict.PROBLEM, check=check, subject=subject, text=text, mend=mend)


def count(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """How many there are of each verdict."""
    counts = dict.fromkeys(Verdict, 0)
    for finding in findings:
        counts[finding.verdict] += 1
    return counts
