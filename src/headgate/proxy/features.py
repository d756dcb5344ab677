"""What the gateway does beside carrying bytes: each feature brings interceptors, a life of its own, and counters.

One rule: a feature that cannot work says so and lets everything pass; it never keeps the gateway from serving.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from headgate.proxy.interceptor import Interceptor


class Feature:
    """Base of features: nothing of anything, so that one overrides only what it has."""

    interceptors: Sequence[Interceptor[Any]] = ()  # in the order in which they see requests

    def running(self) -> AbstractAsyncContextManager[None]:
        """Its life: begun before clients are served, ended when they are gone."""
        return nullcontext()

    def problems(self) -> Mapping[str, str]:
        """Why a client that comes now may not be served; for `/readyz`."""
        return {}

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        """What it has counted, by the families of `metrics`."""
        return {}
