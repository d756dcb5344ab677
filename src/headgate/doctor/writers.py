"""Who else may change Headgate's own topics: the ACLs of the cluster, where it has an authorizer.

A principal that writes `state` or `trips` pauses and resumes groups, and one that deletes or reconfigures a topic loses
what it holds. The gateway refuses its clients the leader's group and transactional id; topics are a matter of ACLs.
Super users have every right without an ACL, and are not shown here.

Without an authorizer the finding on the service account says so, and without DESCRIBE on the cluster the one on that
right.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headgate.base.errors import ClusterError
from headgate.doctor.brokers import Broker
from headgate.doctor.findings import Check, DoctorFinding, KafkaTools, ok, warning
from headgate.doctor.rights import shown
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.admin import DescribeAclsRequest, DescribeAclsResponse

# As org.apache.kafka.common has them: ResourceType, PatternType, AclOperation, AclPermissionType.
_TOPIC: Final = 2
_MATCH: Final = 2
_ANY: Final = 1
_ALLOW: Final = 3
_OPERATIONS: Final = {2: "All", 4: "Write", 6: "Delete", 7: "Alter", 11: "AlterConfigs"}
_VERSION: Final = 3

Writers = Mapping[str, Sequence[str]]  # the operations of each principal, by principal


async def examine_writers(
    broker: Broker, topics: Sequence[str], prefix: str, tools: KafkaTools
) -> Iterable[DoctorFinding]:
    """One finding on all topics; none when the ACLs cannot be read."""
    answers = []
    for topic in topics:
        request = DescribeAclsRequest(
            resource_type_filter=_TOPIC,
            resource_name_filter=topic,
            pattern_type_filter=_MATCH,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ALLOW,
        )
        answer = await broker.call(request, _VERSION)
        if answer.error_code in {ErrorCode.SECURITY_DISABLED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}:
            return ()
        if answer.error_code:
            raise ClusterError(f"ACLs cannot be read: error {answer.error_code}")
        answers.append(answer)
    return (judge_writers(writers_of(answers), prefix, topics[0], tools),)


def writers_of(answers: Iterable[DescribeAclsResponse]) -> Writers:
    found: dict[str, set[str]] = {}
    for answer in answers:
        for resource in answer.resources:
            for one in resource.acls:
                if one.operation in _OPERATIONS and one.permission_type == _ALLOW:
                    found.setdefault(one.principal, set()).add(_OPERATIONS[one.operation])
    return {principal: sorted(found[principal]) for principal in sorted(found)}


def judge_writers(writers: Writers, prefix: str, example: str, tools: KafkaTools) -> DoctorFinding:
    subject = f"who may change {prefix}*"
    others = [f"{one} ({', '.join(writers[one])})" for one in writers if one != tools.principal]
    if not others:
        return ok(Check.TOPICS, subject, f"no principal but {tools.principal}, and super users")
    text = (
        f"{shown(others)} may: a client that writes these topics can pause and resume groups, and one that deletes or "
        "alters them can lose what Headgate knows"
    )
    return warning(Check.TOPICS, subject, text, mend=f"remove their ACLs; list them with: {tools.list_acls(example)}")
