"""The names that a caller may see: a token may be limited to some of them, by patterns.

A name that is not visible never leaves the process: the thing that has it is shown without it, or not at all, and a
request for it is answered as if it did not exist.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.config.values import GroupPatterns


@dataclass(frozen=True, slots=True)
class VisibleNames:
    """`patterns` are those of the token, with `*` and `?`; None is a caller that may see all names."""

    patterns: tuple[str, ...] | None

    @property
    def are_limited(self) -> bool:
        return self.patterns is not None

    def has(self, name: str) -> bool:
        return self.patterns is None or GroupPatterns(allow=self.patterns).matches(name)

    def among(self, names: Iterable[str]) -> Iterable[str]:
        return names if self.patterns is None else (name for name in names if self.has(name))


ALL_NAMES: Final = VisibleNames(None)
