"""The run in `docs/openlineage.md` has the events that the pipeline makes of such a job."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from openlineage.client.serde import Serde

from headgate.lineage.jobs import EstateJob
from headgate.pipeline.catalogue_export import events_of

PAGE = (Path(__file__).parents[3] / "docs" / "openlineage.md").read_text("utf-8")
EVENTS = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


def named(datasets: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(one["name"] for one in datasets)


def test_the_events_of_the_run_are_those_of_its_job() -> None:
    job_event, run_event = EVENTS
    kind, _, actor = job_event["job"]["name"].partition(".")
    entries = job_event["job"]["facets"]["lineage"]["entries"]
    job = EstateJob(
        kind=kind,
        actor=actor,
        component="",
        inputs=named(job_event["inputs"]),
        outputs=named(job_event["outputs"]),
        pairs=tuple((start, entry["name"]) for entry in entries for start in named(entry["inputs"])),
    )
    [namespace] = {one["namespace"] for one in (*job_event["inputs"], *job_event["outputs"])}
    cluster = job_event["job"]["namespace"].removeprefix("headgate://")
    at_ms = round(datetime.fromisoformat(job_event["eventTime"]).timestamp() * 1000)
    made_job, made_run = (json.loads(Serde.to_json(one)) for one in events_of(job, cluster, namespace, at_ms))
    assert job_event == made_job
    # The second event is shown without what it shares with the first, and the client adds its version when it sends it.
    shared = ("inputs", "outputs", "job")
    assert run_event["run"].pop("facets").keys() == {"tags"}
    assert made_run["run"].pop("facets") == {}
    assert run_event == {name: value for name, value in made_run.items() if name not in shared}
