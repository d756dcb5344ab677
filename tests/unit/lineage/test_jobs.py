"""The jobs of an estate as other catalogues get them."""

from itertools import product

from headgate.lineage.estate_map import MapRow, MapUse
from headgate.lineage.graph import LineageFlow
from headgate.lineage.jobs import EstateJob, estate_jobs


def use(kind: str, actor: str, topic: str, direction: str, *, filled: bool = False) -> MapRow:
    return MapRow(kind, actor, topic, direction, MapUse(True, True, filled, False, None, None, None))


def flow(component: str, in_topic: str, out_topic: str, actor: str = "app") -> LineageFlow:
    return LineageFlow("streams", actor, component, in_topic, out_topic)


def test_an_application_of_one_component_is_one_job_with_exact_pairs() -> None:
    rows = [use("streams", "app", topic, "read") for topic in ("b", "a", "undeclared")]
    (job,) = estate_jobs(rows, [flow("0", "a", "x"), flow("0", "b", "y"), flow("global", "g", "")])
    assert job == EstateJob(
        kind="streams",
        actor="app",
        component="",
        inputs=("a", "b", "g", "undeclared"),
        outputs=("x", "y"),
        pairs=(("a", "x"), ("b", "y")),
    )
    assert job.name == "streams.app"


def test_unrelated_components_are_jobs_of_their_own() -> None:
    rows = [use("streams", "app.v1", "a", "read"), use("streams", "app.v1", "seen", "read")]
    jobs = estate_jobs(rows, [flow("0", "a", "x", "app.v1"), flow("1", "b", "y", "app.v1")])
    assert [(job.name, job.inputs, job.outputs) for job in jobs] == [
        ("streams_component.app.v1.0", ("a",), ("x",)),
        ("streams_component.app.v1.1", ("b",), ("y",)),
    ]


def test_what_a_share_group_reads_flows_into_its_dead_letter_topic() -> None:
    rows = [use("share_group", "sg", "orders", "read"), use("share_group", "sg", "dlq.orders", "write")]
    (job,) = estate_jobs(rows, [])
    assert job.pairs == (("orders", "dlq.orders"),)


def test_the_pairs_of_a_connector_are_not_known_and_clients_are_no_jobs() -> None:
    rows = [
        use("connector", "mirror", "a", "read"),
        use("connector", "mirror", "b", "write"),
        use("client", "shop", "orders", "write"),
        use("consumer_group", "reports", "orders", "read"),
    ]
    (job,) = estate_jobs(rows, [])
    assert (job.name, job.inputs, job.outputs, job.pairs) == ("connector.mirror", ("a",), ("b",), None)


def test_an_application_that_was_only_seen_has_no_pairs() -> None:
    (job,) = estate_jobs([use("spark", "night", "a", "read")], [])
    assert (job.inputs, job.outputs, job.pairs) == (("a",), (), None)


def test_topics_of_patterns_and_chosen_sinks_flow_through_every_open_end() -> None:
    rows = [
        use("streams", "app", "orders.eu", "read", filled=True),
        use("streams", "app", "out.eu", "write", filled=True),
        use("streams", "app", "b", "read", filled=True),  # which a part names
    ]
    jobs = estate_jobs(rows, [flow("0", "", "x"), flow("1", "b", ""), flow("2", "", ""), flow("global", "g", "")])
    assert [(job.name, job.inputs, job.outputs, job.pairs) for job in jobs] == [
        ("streams_component.app.0", ("orders.eu",), ("x",), (("orders.eu", "x"),)),
        ("streams_component.app.1", ("b",), ("out.eu",), (("b", "out.eu"),)),
        ("streams_component.app.2", ("orders.eu",), ("out.eu",), (("orders.eu", "out.eu"),)),
        ("streams_component.app.global", ("g",), (), None),
    ]


def test_what_a_partial_description_does_not_name_has_no_known_source() -> None:
    (job,) = estate_jobs([use("streams", "app", "x", "write")], [flow("0", "a", "")])
    assert (job.inputs, job.outputs, job.pairs) == (("a",), ("x",), None)


def named(kind: str, actor: str, component: str) -> EstateJob:
    return EstateJob(kind=kind, actor=actor, component=component, inputs=(), outputs=(), pairs=None)


def test_different_jobs_have_different_names() -> None:
    """All of them, with texts of up to three of the characters that a name gives a meaning to."""
    texts = ["".join(some) for length in range(4) for some in product("0.%2E", repeat=length)]
    jobs = product(("streams", "spark", "connector", "share_group"), texts, texts)
    names = [named(*job).name for job in jobs]
    assert len(set(names)) == len(names)


def test_dots_of_an_application_and_of_its_component_are_told_apart() -> None:
    names = [named("streams", *parts).name for parts in (("a.0", ""), ("a", "0"), ("a.0", "0"), ("a", "0.0"))]
    assert names == [
        "streams.a.0",
        "streams_component.a.0",
        "streams_component.a.0.0",
        "streams_component.a.0%2E0",
    ]
