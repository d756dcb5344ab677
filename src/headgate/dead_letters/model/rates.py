"""A rate of failures with its Wilson interval: how large the true rate may be, by what was counted."""

from dataclasses import dataclass
from math import sqrt

_Z = 1.959963984540054  # 95 % on both sides together
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class FailureRate:
    """So many of these attempts failed. Without attempts nothing is known: the bounds are 0 and 1."""

    failed: int
    attempts: int

    def __add__(self, other: "FailureRate") -> "FailureRate":
        return FailureRate(self.failed + other.failed, self.attempts + other.attempts)

    def __sub__(self, other: "FailureRate") -> "FailureRate":
        """What remains; counts that disagree leave 0, never less."""
        attempts = max(self.attempts - other.attempts, 0)
        return FailureRate(min(max(self.failed - other.failed, 0), attempts), attempts)

    @property
    def rate(self) -> float:
        return self.failed / self.attempts if self.attempts else 0.0

    @property
    def lower(self) -> float:
        return self._bound(-1)

    @property
    def upper(self) -> float:
        return self._bound(1)

    def _bound(self, sign: int) -> float:
        n = self.attempts
        if n == 0:
            return float(sign > 0)
        rate, square = self.rate, _Z * _Z
        width = _Z * sqrt(rate * (1 - rate) / n + square / (4 * n * n))
        return min(max((rate + square / (2 * n) + sign * width) / (1 + square / n), 0.0), 1.0)

    @property
    def figures(self) -> dict[str, object]:
        """The numbers as they are shown as evidence."""
        bounds = {"rate": self.rate, "lower": self.lower, "upper": self.upper}
        return {"failed": self.failed, "attempts": self.attempts} | {
            name: round(value, _DIGITS) for name, value in bounds.items()
        }


NONE = FailureRate(0, 0)
