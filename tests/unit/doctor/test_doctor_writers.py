"""Which principals the doctor names that may change Headgate's own topics."""

import asyncio
from typing import Any

import pytest

from headgate.base.errors import ClusterError
from headgate.doctor.findings import DoctorFinding, KafkaTools
from headgate.doctor.writers import examine_writers
from headgate.wire.messages.admin import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribedAclResource,
)

TOOLS = KafkaTools(bootstrap="b:9092", principal="User:headgate")
READ, WRITE, DELETE, ALL, ALTER_CONFIGS = 3, 4, 6, 2, 11
DENY, ALLOW = 2, 3
Acl = tuple[str, int, int]


class Authorizer:
    """A broker that knows these ACLs of the topic `h.state`, and none of others."""

    def __init__(self, *acls: Acl, error: int = 0) -> None:
        self._acls = tuple(
            AclDescription(principal=principal, host="*", operation=operation, permission_type=permission)
            for principal, operation, permission in acls
        )
        self._error = error

    async def call(self, request: DescribeAclsRequest, version: int) -> DescribeAclsResponse:
        assert version in request.valid
        assert (request.resource_type_filter, request.pattern_type_filter) == (2, 2)
        assert request.principal_filter is None
        resource = DescribedAclResource(resource_type=2, resource_name="h.", pattern_type=4, acls=self._acls)
        is_state = request.resource_name_filter == "h.state"
        return DescribeAclsResponse(error_code=self._error, resources=(resource,) if is_state else ())


def examined(*acls: Acl, error: int = 0) -> list[DoctorFinding]:
    broker: Any = Authorizer(*acls, error=error)
    return list(asyncio.run(examine_writers(broker, ("h.trips", "h.state"), "h.", TOOLS)))


@pytest.mark.parametrize(
    "acls", [(), (("User:headgate", WRITE, ALLOW),), (("User:r", READ, ALLOW),), (("User:d", WRITE, DENY),)]
)
def test_readers_and_the_account_itself_are_not_named(acls: tuple[Acl, ...]) -> None:
    [finding] = examined(*acls)
    assert (finding.verdict.value, finding.subject) == ("ok", "who may change h.*")


def test_principals_that_may_change_the_topics_are_named() -> None:
    [finding] = examined(
        ("User:headgate", ALL, ALLOW),
        ("User:w", WRITE, ALLOW),
        ("User:w", DELETE, ALLOW),
        ("User:*", ALL, ALLOW),
        ("User:c", ALTER_CONFIGS, ALLOW),
    )
    assert finding.verdict.value == "warning"
    assert finding.text.startswith("User:* (All), User:c (AlterConfigs), User:w (Delete, Write) may: ")
    assert "kafka-acls.sh --bootstrap-server b:9092 --list --topic h.trips" in finding.mend


@pytest.mark.parametrize("error", [54, 31])
def test_without_an_authorizer_or_the_right_to_see_its_acls_other_findings_say_so(error: int) -> None:
    assert examined(error=error) == []


def test_another_error_is_reported() -> None:
    with pytest.raises(ClusterError, match="error 35"):
        examined(error=35)
