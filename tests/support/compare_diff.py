"""What differs, told so that a person sees it at once."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

_MOST_LINES, _LONGEST = 60, 600


@dataclass(frozen=True, slots=True)
class Difference:
    """One finding: where, and what."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}\n{self.what}"


def diff_of(wanted: Sequence[str], got: Sequence[str], wanted_name: str, got_name: str) -> str:
    """The lines that differ with a little around them; a long diff is cut, and says so."""
    lines = list(difflib.unified_diff(wanted, got, wanted_name, got_name, lineterm="", n=4))
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"... and {len(lines) - _MOST_LINES} lines more"]
    return "\n".join(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..." for line in lines)


def report(differences: Sequence[Difference]) -> str:
    """All findings as one text; empty when there is none."""
    if not differences:
        return ""
    shown = "\n\n".join(str(one) for one in differences[:10])
    more = f"\n\n... and {len(differences) - 10} differences more" if len(differences) > 10 else ""
    return f"{len(differences)} differences\n\n{shown}{more}"
