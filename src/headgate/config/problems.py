"""Problems of a configuration, in sentences that an operator can act on.

A problem names the path of the key and says what to write instead. It never shows a given value other than a number:
any text may be a password in the wrong place.
"""

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headgate.base.errors import UsageError

_PRINTED = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to correct: `path` is a key (`gateway.nodes`), a variable's name, or the file that cannot be read."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True)
class Violation:
    """A problem of the first of `paths` that depends on all of them."""

    paths: tuple[str, ...]
    text: str


class ConfigError(UsageError):
    """The configuration cannot be used; `problems` has everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


def shown(name: str) -> str:
    """A name from outside, escaped and shortened for one line of a terminal."""
    text = name if name.isprintable() else ascii(name)[1:-1]
    return text if len(text) <= _PRINTED else f"{text[:_PRINTED]}..."


def path_text(loc: Sequence[str | int]) -> str:
    """`("gateway", "deny_api_keys", 1)` as `gateway.deny_api_keys[1]`."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{shown(part)}" if text else shown(part)
    return text


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that is most similar, if one is."""
    found = difflib.get_close_matches(name[:_PRINTED], known, n=1, cutoff=0.6)
    return found[0] if found else None
