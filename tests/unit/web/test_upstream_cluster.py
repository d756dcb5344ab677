"""The id of the server's own cluster: unknown before it answers, kept while it is away, replaced when it is another."""

import asyncio

from structlog.typing import EventDict

from headgate.base.errors import ClusterError
from headgate.web.upstream_cluster import UpstreamCluster


async def test_the_id_is_kept_while_the_cluster_is_away_and_follows_one_that_was_created_again(
    logs: list[EventDict],
) -> None:
    answers: list[str | None] = [None, "c1", None, "c1", "c2"]

    async def ask() -> str:
        answer = answers.pop(0)
        if answer is None:
            raise ClusterError("away")
        return answer

    upstream, seen = UpstreamCluster(ask), []
    while answers:
        await upstream.refresh()
        seen.append(upstream.cluster)
    assert seen == [None, "c1", "c1", "c1", "c2"]
    assert [(one["cluster"], one["before"]) for one in logs] == [("c2", "c1")]


async def test_it_is_asked_while_the_server_runs() -> None:
    async def ask() -> str:
        return "c1"

    upstream = UpstreamCluster(ask)
    async with upstream.running():
        for _ in range(3_000):
            if upstream.cluster == "c1":
                return
            await asyncio.sleep(0.01)
    raise AssertionError(upstream.cluster)
