"""The health of the topology store in `/readyz`: details, because clients are served without it.

One rule: no text of a store goes into it. The page has no authentication, and the text of a plugin's exception
can hold anything; the log has the texts.
"""

from collections.abc import Mapping
from typing import Final

from headgate.topologies.store_calls import StoreCalls

STORE: Final = "topology store"
NOT_AVAILABLE: Final = (
    "topology descriptions are neither requested nor shown: the log line "
    "'topologies are not available, retrying' has the reason"
)


def store_details(calls: StoreCalls | None, *, is_ready: bool) -> Mapping[str, str]:
    """What an operator should know of the store; `calls` is None while it is not open."""
    if calls is None or not is_ready:
        return {STORE: NOT_AVAILABLE}
    texts = []
    if calls.hanging:
        texts.append(f"{calls.hanging} cancelled calls have not ended")
    if not calls.is_called:
        texts.append("the store is not called until some of them end")
    if calls.failures_in_a_row:
        texts.append(f"the last {calls.failures_in_a_row} calls failed or timed out")
    return {STORE: ", ".join(texts)} if texts else {}
