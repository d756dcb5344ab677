"""What the gateway does beside carrying bytes: a feature has interceptors, a life of its own, and metrics.

Invariant: a feature that cannot work reports it and lets everything pass; it never keeps the gateway from serving.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from headgate.proxy.interceptor import Interceptor

# A sample is identified by its family's name and its label values.
Samples = Mapping[tuple[str, tuple[str, ...]], float]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric of `/metrics`; counters get `_total` behind their name.

    `merge` is how the values of several workers become one: `min` for what they all have in common.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    merge: Literal["sum", "min"] = "sum"


class Feature:
    """Base of features: every member is empty, so that a subclass overrides only what it has."""

    interceptors: Sequence[Interceptor[Any]] = ()  # in the order in which they see requests
    families: Sequence[MetricFamily] = ()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Its life: begins before clients are served, ends when their connections have ended."""
        return nullcontext()

    def problems(self) -> Mapping[str, str]:
        """Why a client that connects now may not be served; for `/readyz`."""
        return {}

    def details(self) -> Mapping[str, str]:
        """What an operator should know although clients are served; for `/readyz`, which stays ready."""
        return {}

    def samples(self) -> Samples:
        """The current values of its metric families."""
        return {}
