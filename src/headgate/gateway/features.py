"""What the gateway does beside carrying bytes: each feature brings interceptors, a life of its own, and counters.

One rule: a feature that cannot work says so and lets everything pass; it never keeps the gateway from serving.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from headgate.gateway.interceptor import Interceptor


class Feature(Protocol):
    @property
    def interceptors(self) -> Sequence[Interceptor]:
        """In the order in which they see requests."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Its life: begun before clients are served, ended when they are gone."""

    def problems(self) -> Mapping[str, str]:
        """Why a client that comes now may not be served; for `/readyz`."""

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        """What it has counted, by the families of `metrics`."""
