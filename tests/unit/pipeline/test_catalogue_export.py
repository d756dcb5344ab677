"""The estate as OpenLineage events: what is sent, when again, and how. The transports are those of the real client."""

import json
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from openlineage.client.event_v2 import JobEvent, RunEvent, RunState
from openlineage.client.generated.base import JobFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.lineage import LineageJobFacet

from headgate.base.errors import ClusterError, PlatformError, UsageError
from headgate.config import Config, load
from headgate.lineage.jobs import EstateJob
from headgate.pipeline.catalogue_export import CatalogueExport, create_export, events_of
from tests.support.clock import FakeClock
from tests.support.openlineage_events import SchemaError, read_event
from tests.unit.lineage.shop import DAY, ROWS, TWO, pair, use, write, write_shop

Sent = dict[str, Any]

# In the order in which they are sent: by kind and name.
NAMES = [
    "share_group.billing",
    "spark.night-job",
    "streams_component.shop-app.0",
    "streams_component.shop-app.1",
]


def configured(folder: Path, transport: str, **keys: object) -> Config:
    settings = folder / "openlineage.yml"
    settings.write_text(f"transport:\n{transport}", encoding="utf-8")
    places = {"tables.path": str(folder / "tables"), "pipeline.checkpoint": str(folder / "checkpoint")}
    upstream = {"upstream.bootstrap": ["broker-0.internal:9092", "broker-1.internal:9092"]}
    return load(None, {}, {**places, **upstream, "pipeline.openlineage": str(settings), **keys})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_shop(tmp_path / "tables")
    return tmp_path


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(TWO)


@pytest.fixture
def export(folder: Path, clock: FakeClock) -> Iterator[CatalogueExport]:
    made = create_export(configured(folder, _to_file(folder)), clock)
    yield made
    made.close()


def _to_file(folder: Path) -> str:
    return f"  type: file\n  log_file_path: {folder / 'events.jsonl'}\n  append: true\n"


def sent(folder: Path) -> list[Sent]:
    file = folder / "events.jsonl"
    found = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    file.unlink(missing_ok=True)
    return found


def names(events: list[Sent]) -> list[str]:
    return [event["job"]["name"] for event in events if "run" not in event]


def test_each_component_and_actor_is_a_job_with_its_topics(folder: Path, export: CatalogueExport) -> None:
    assert export.export("c1") == 4
    events = sent(folder)
    assert names(events) == NAMES
    (made,) = [
        event for event in events if event["job"]["name"] == "streams_component.shop-app.0" and "run" not in event
    ]
    namespace = "kafka://broker-0.internal:9092"
    orders = {"namespace": namespace, "name": "orders", "type": "DATASET"}
    assert made["job"]["namespace"] == "headgate://c1"
    assert [(one["namespace"], one["name"]) for one in made["inputs"]] == [(namespace, "orders")]
    assert [one["name"] for one in made["outputs"]] == ["large", "totals"]
    facets = made["job"]["facets"]
    assert (facets["jobType"]["integration"], facets["jobType"]["processingType"]) == ("KAFKA_STREAMS", "STREAMING")
    assert [(one["name"], [_named(source) for source in one["inputs"]]) for one in facets["lineage"]["entries"]] == [
        ("large", [orders]),
        ("totals", [orders]),
    ]


def test_an_output_whose_sources_are_not_known_has_no_entry() -> None:
    """An entry without inputs would say that nothing flows into it."""
    job = EstateJob(
        kind="streams", actor="app", component="", inputs=("a",), outputs=("x", "seen"), pairs=(("a", "x"),)
    )
    for event in events_of(job, "c1", "kafka://k:9092", TWO):
        facets: Any = event.job.facets
        assert [one.name for one in facets["lineage"].entries] == ["x"]
        assert [one.name for one in event.outputs or ()] == ["x", "seen"]


def _named(source: Sent) -> Sent:
    return {key: source[key] for key in ("namespace", "name", "type")}


def test_every_field_of_every_event_is_one_of_the_specification(folder: Path, export: CatalogueExport) -> None:
    mirror = use("mirror", "orders", "read", "connector", declared=False)
    write(folder / "tables", "lineage_edges", [*ROWS["lineage_edges"], mirror])
    assert export.export("c1") == 5
    events = [read_event(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]
    assert [type(event) for event in events] == [JobEvent, RunEvent] * 5
    for event in events:
        assert event.producer.startswith("urn:headgate:")
        assert datetime.fromisoformat(event.eventTime) == datetime.fromtimestamp(TWO / 1000, UTC)
        facets: dict[str, type[JobFacet]] = {"jobType": JobTypeJobFacet}
        if event.job.name.startswith(("share_group.", "streams_component.")):  # whose pairs are known
            facets["lineage"] = LineageJobFacet
        assert {name: type(facet) for name, facet in (event.job.facets or {}).items()} == facets
    runs = [event for event in events if isinstance(event, RunEvent)]
    assert {event.eventType for event in runs} == {RunState.COMPLETE}
    assert len({event.run.runId for event in runs}) == len(runs)


def test_an_event_with_any_mistyped_or_unknown_field_would_be_noticed(folder: Path, export: CatalogueExport) -> None:
    """Of the events above: the test of them is as strict as it says."""
    export.export("c1")
    lines = (folder / "events.jsonl").read_text("utf-8").splitlines()
    whole = [line for line in lines if json.loads(line)["job"]["name"] == "streams_component.shop-app.0"]
    wrong = [changed for line in whole for changed in _changed(json.loads(line))]
    assert len(wrong) > 200
    for event in wrong:
        with pytest.raises(SchemaError):
            read_event(json.dumps(event))


def _changed(found: Any) -> Iterator[Any]:
    """The value with one thing wrong: a value replaced, or a field added, at any depth."""
    yield {"of another type": 7}
    if isinstance(found, dict):
        yield {**found, "unknown": 7}
        for name in found:
            yield from ({**found, name: one} for one in (7, *_changed(found[name])))
    elif isinstance(found, list):
        for number, item in enumerate(found):
            yield from ([*found[:number], one, *found[number + 1 :]] for one in _changed(item))


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("eventTime", "2026-11-15T14:00:00", "no time zone"),
        ("eventTime", "today", "RunEvent"),
        ("eventType", "DONE", "DONE"),
        ("run/runId", "seven", "RunEvent.run"),
        ("job/name", None, r"RunEvent\.job\.name"),
        ("job/facets/jobType/integration", None, "integration"),
        ("job/facets/lineage/entries/0/type", "TABLE", "TABLE"),
        ("job/facets/lineage/_producer", None, "_producer: missing"),
        ("schemaURL", "https://openlineage.io/spec/1-0-0/OpenLineage.json#/$defs/RunEvent", "not that of RunEvent"),
    ],
)
def test_what_an_event_must_have_is_required(
    path: str, value: str | None, problem: str, folder: Path, export: CatalogueExport
) -> None:
    export.export("c1")
    event = next(one for one in sent(folder) if "run" in one and "lineage" in one["job"]["facets"])
    *parents, name = path.split("/")
    place: Any = event
    for parent in parents:
        place = place[int(parent)] if isinstance(place, list) else place[parent]
    if value is None:
        del place[name]
    else:
        place[name] = value
    with pytest.raises(SchemaError, match=problem):
        read_event(json.dumps(event))


def test_only_changed_jobs_are_sent_again_and_all_of_them_on_another_day(
    folder: Path, export: CatalogueExport, clock: FakeClock
) -> None:
    export.export("c1")
    sent(folder)
    assert export.export("c1") == 0
    refunds = use("billing", "refunds", "read", "share_group")
    write(folder / "tables", "lineage_edges", [*ROWS["lineage_edges"], refunds])
    assert export.export("c1") == 1
    assert names(sent(folder)) == ["share_group.billing"]
    clock.now_ms += DAY
    assert export.export("c1") == 4
    assert len(sent(folder)) == 8


def test_jobs_of_similar_names_are_sent_and_marked_apart(
    tmp_path: Path, clock: FakeClock, export: CatalogueExport
) -> None:
    """Component 0 of `orders`, and five programs whose names could be taken for it or for each other."""
    programs = [("orders.0", "streams"), ("orders.0", "spark"), ("orders.0", "share_group"), ("orders.0", "connector")]
    edges = [use(actor, "orders", "read", kind, declared=True) for actor, kind in programs]
    write(tmp_path / "tables", "lineage_edges", [*edges, use("orders", "orders", "read", declared=True)])
    write(tmp_path / "tables", "app_io", [pair("orders", f"out-{one}", one, "orders") for one in "01"])
    assert export.export("c1") == 6
    events = sent(tmp_path)
    expected = ["connector.orders.0", "share_group.orders.0", "spark.orders.0", "streams.orders.0"]
    expected += ["streams_component.orders.0", "streams_component.orders.1"]
    assert sorted(names(events)) == expected
    assert len({event["run"]["runId"] for event in events if "run" in event}) == 6
    restarted = create_export(configured(tmp_path, _to_file(tmp_path)), clock)
    assert restarted.export("c1") == 0, "each has its own mark"
    restarted.close()


def test_marks_of_an_earlier_release_are_replaced(folder: Path, export: CatalogueExport) -> None:
    """It named jobs by their actor alone: all are sent once, with the new names."""
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "openlineage-sent.json").write_text('{"streams shop-app.0": "1/ab"}', "utf-8")
    assert export.export("c1") == 4
    assert sorted(json.loads((folder / "checkpoint" / "openlineage-sent.json").read_text("utf-8"))) == NAMES


def test_a_restart_sends_nothing_again(folder: Path, export: CatalogueExport, clock: FakeClock) -> None:
    export.export("c1")
    sent(folder)
    restarted = create_export(configured(folder, _to_file(folder)), clock)
    assert restarted.export("c1") == 0
    restarted.close()
    (folder / "checkpoint" / "openlineage-sent.json").write_text("{", "utf-8")
    restarted = create_export(configured(folder, _to_file(folder)), clock)
    assert restarted.export("c1") == 4, "what was sent is not known"
    restarted.close()


def test_there_is_nothing_to_send_before_there_are_tables(tmp_path: Path, clock: FakeClock) -> None:
    export = create_export(configured(tmp_path, _to_file(tmp_path)), clock)
    assert export.export("c1") == 0
    export.close()


def test_the_namespace_can_be_configured(folder: Path, clock: FakeClock) -> None:
    config = configured(
        folder, _to_file(folder), **{"pipeline.openlineage_namespace": "kafka://kafka.example.org:9092"}
    )
    export = create_export(config, clock)
    export.export("c1")
    export.close()
    found = {one["namespace"] for event in sent(folder) for one in event["inputs"] + event["outputs"]}
    assert found == {"kafka://kafka.example.org:9092"}


class Catalogue:
    """A catalogue over HTTP that answers each event with the status that `status_of` gives."""

    def __init__(self) -> None:
        self.received: list[Sent] = []
        self.requests = 0
        self.status_of: Callable[[Sent], int] = lambda _: 200
        catalogue = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                catalogue.requests += 1
                status = catalogue.status_of(event)
                if status == 200:
                    catalogue.received.append(event)
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def transport(self, user: str = "") -> str:
        return f"  type: http\n  url: http://{user}127.0.0.1:{self.server.server_port}\n  retry:\n    total: 0\n"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def catalogue() -> Iterator[Catalogue]:
    made = Catalogue()
    yield made
    made.close()


@pytest.fixture
def http_export(folder: Path, clock: FakeClock, catalogue: Catalogue) -> Iterator[CatalogueExport]:
    made = create_export(configured(folder, catalogue.transport("ops:hunter2@")), clock)
    yield made
    made.close()


def test_an_event_that_was_refused_is_sent_again(http_export: CatalogueExport, catalogue: Catalogue) -> None:
    catalogue.status_of = lambda _: 500
    with pytest.raises(ClusterError, match="an OpenLineage event could not be sent"):
        http_export.export("c1")
    catalogue.status_of = lambda _: 200
    assert http_export.export("c1") == 4
    assert names(catalogue.received) == [*NAMES[3:], *NAMES[:3]], "those that failed come last"


def test_a_job_that_cannot_be_sent_holds_up_no_other(http_export: CatalogueExport, catalogue: Catalogue) -> None:
    catalogue.status_of = lambda event: 500 if event["job"]["name"] == NAMES[0] else 200
    with pytest.raises(ClusterError, match=f"jobs not sent: {NAMES[0]}$"):
        http_export.export("c1")
    assert names(catalogue.received) == NAMES[1:]
    catalogue.status_of = lambda _: 200
    assert http_export.export("c1") == 1


def test_jobs_that_always_fail_hold_up_no_other(http_export: CatalogueExport, catalogue: Catalogue) -> None:
    catalogue.status_of = lambda event: 500 if event["job"]["name"] in NAMES[:3] else 200
    for _ in range(2):
        with pytest.raises(ClusterError):
            http_export.export("c1")
    assert names(catalogue.received) == NAMES[3:]


def test_a_catalogue_that_refuses_the_events_of_jobs_gets_those_of_runs(
    http_export: CatalogueExport, catalogue: Catalogue
) -> None:
    catalogue.status_of = lambda event: 200 if "run" in event else 422
    assert http_export.export("c1") == 4
    assert [event["job"]["name"] for event in catalogue.received] == NAMES
    assert http_export.export("c1") == 0


@pytest.mark.parametrize("status", [401, 403, 429])
def test_a_refusal_that_may_pass_is_tried_again(
    status: int, http_export: CatalogueExport, catalogue: Catalogue
) -> None:
    catalogue.status_of = lambda event: 200 if "run" in event else status
    with pytest.raises(ClusterError):
        http_export.export("c1")


def test_a_catalogue_that_is_away_is_asked_for_three_jobs_at_a_time(
    http_export: CatalogueExport, catalogue: Catalogue
) -> None:
    catalogue.status_of = lambda _: 503
    with pytest.raises(ClusterError, match=f"jobs not sent: {', '.join(NAMES[:3])} and 1 more$"):
        http_export.export("c1")
    assert catalogue.requests == 6


def test_errors_do_not_show_credentials_of_the_address(http_export: CatalogueExport, catalogue: Catalogue) -> None:
    catalogue.status_of = lambda _: 403
    with pytest.raises(ClusterError, match="HTTPError: 403 Client Error: Forbidden for url: http://127") as failure:
        http_export.export("c1")
    assert "hunter2" not in str(failure.value)


def test_a_stop_ends_the_export(http_export: CatalogueExport, catalogue: Catalogue) -> None:
    stop = Event()

    def stop_after_the_first(event: Sent) -> int:
        if "run" in event:
            stop.set()
        return 200

    catalogue.status_of = stop_after_the_first
    assert http_export.export("c1", stop) == 1
    assert http_export.export("c1") == 3, "the others come with the next export"


def test_another_namespace_sends_all_jobs_again(folder: Path, export: CatalogueExport, clock: FakeClock) -> None:
    assert export.export("c1") == 4
    other = {"pipeline.openlineage_namespace": "kafka://kafka.example.org:9092"}
    renamed = create_export(configured(folder, _to_file(folder), **other), clock)
    assert renamed.export("c1") == 4
    renamed.close()


def test_events_that_one_of_several_transports_lost_are_sent_again(
    folder: Path, clock: FakeClock, catalogue: Catalogue
) -> None:
    catalogue.status_of = lambda _: 500
    both = {"file": {"type": "file", "log_file_path": str(folder / "events.jsonl"), "append": True}}
    both["http"] = {"type": "http", "url": f"http://127.0.0.1:{catalogue.server.server_port}", "retry": {"total": 0}}
    export = create_export(configured(folder, f"  type: composite\n  transports: {json.dumps(both)}\n"), clock)
    with pytest.raises(ClusterError, match="could not be sent"):
        export.export("c1")
    export.close()


def test_a_transport_that_cannot_say_what_was_sent_is_refused(folder: Path, clock: FakeClock) -> None:
    parts = "[{type: console}, {type: async_http, url: 'http://127.0.0.1:1'}]"
    for transport in ("  type: async_http\n  url: http://127.0.0.1:1\n", f"  type: composite\n  transports: {parts}\n"):
        with pytest.raises(UsageError, match="the transport async_http does not say whether an event was sent"):
            create_export(configured(folder, transport), clock)


def test_a_folder_that_cannot_be_written_is_told(folder: Path, export: CatalogueExport) -> None:
    (folder / "checkpoint").write_text("not a folder", "utf-8")
    with pytest.raises(PlatformError, match=r"openlineage-sent\.json cannot be written"):
        export.export("c1")


def test_an_event_that_kafka_does_not_confirm_was_not_sent(folder: Path, clock: FakeClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # it is bound, and does not answer
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = f"{{bootstrap.servers: '{address}', message.timeout.ms: 300}}"
        export = create_export(configured(folder, f"  type: kafka\n  topic: ol\n  config: {settings}\n"), clock)
        try:
            with pytest.raises(ClusterError, match=r"could not be sent: ClusterError: .*_MSG_TIMED_OUT"):
                export.export("c1")
            assert json.loads((folder / "checkpoint" / "openlineage-sent.json").read_text("utf-8")) == {}
        finally:
            export.close()


def test_kafka_is_waited_for_a_bounded_time(folder: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.pipeline.catalogue_transport.CONFIRM_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = f"  type: kafka\n  topic: ol\n  config: {{bootstrap.servers: '{address}'}}\n"
        export = create_export(configured(folder, settings), clock)
        try:
            with pytest.raises(ClusterError, match="Kafka has not confirmed it within"):
                export.export("c1")
        finally:
            export.close()


@pytest.mark.parametrize(
    "transport", ["  type: nothing-known\n", "  type: http\n", "", "  - a\n", "  type: kafka\n  password: secret\n"]
)
def test_wrong_settings_are_a_usage_error_without_their_values(
    transport: str, tmp_path: Path, clock: FakeClock
) -> None:
    with pytest.raises(UsageError, match=r"^pipeline\.openlineage: ") as failure:
        create_export(configured(tmp_path, transport), clock)
    assert "secret" not in str(failure.value)


def test_a_missing_file_is_a_usage_error(tmp_path: Path, clock: FakeClock) -> None:
    config = load(None, {}, {"pipeline.openlineage": str(tmp_path / "absent.yml")})
    with pytest.raises(UsageError, match="cannot be read: FileNotFoundError"):
        create_export(config, clock)
