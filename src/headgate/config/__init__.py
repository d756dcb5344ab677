"""One immutable configuration, validated as a whole; all problems are reported at once, each with its path."""

from typing import TYPE_CHECKING, Any

from headgate.config.addresses import Address
from headgate.config.model import Config
from headgate.config.problems import ConfigError, Problem

if TYPE_CHECKING:
    from headgate.config.loading import check, load

__all__ = ["Address", "Config", "ConfigError", "Problem", "check", "load"]


def __getattr__(name: str) -> Any:
    """`check` and `load`, with what they need: a worker gets its configuration from the supervisor."""
    if name in {"check", "load"}:
        from headgate.config import loading  # noqa: PLC0415

        return getattr(loading, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
