"""Names for the identifiers that would otherwise all be `int` and `str`."""

from typing import NewType

NodeId = NewType("NodeId", int)
ApiKey = NewType("ApiKey", int)
ApiVersion = NewType("ApiVersion", int)
CorrelationId = NewType("CorrelationId", int)
ClusterId = NewType("ClusterId", str)
