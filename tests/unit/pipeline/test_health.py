"""What status pages say of the pipeline: problems as long as they last, and how far each query has come."""

from prometheus_client.parser import text_string_to_metric_families

from headgate.pipeline.health import STARTING, Health


def test_a_query_is_not_ready_until_it_has_begun() -> None:
    health = Health(["facts", "append"])
    assert health.problems() == {"facts": STARTING, "append": STARTING}
    health.clear("facts")
    assert health.problems() == {"append": STARTING}


def test_a_problem_stands_until_it_is_cleared() -> None:
    health = Health()
    health.tell("table changes", "its schema version is 99")
    health.tell("table changes", "it is gone")
    assert health.problems() == {"table changes": "it is gone"}
    health.clear("table changes")
    health.clear("table changes")
    assert health.problems() == {}


def test_figures_add_up_and_a_lag_that_nobody_knows_is_left_out() -> None:
    health = Health(["facts"])
    health.progress("facts", rows=5, rejected=1, lag=3, batch_ms=1500)
    health.progress("facts", rows=2, rejected=0, lag=None, batch_ms=500)
    samples = {
        (sample.name, sample.labels.get("query")): sample.value
        for family in text_string_to_metric_families(health.page().decode())
        for sample in family.samples
    }
    assert samples == {
        ("headgate_pipeline_ready", None): 0.0,
        ("headgate_pipeline_batches_total", "facts"): 2.0,
        ("headgate_pipeline_rows_total", "facts"): 7.0,
        ("headgate_pipeline_rejected_total", "facts"): 1.0,
        ("headgate_pipeline_batch_seconds", "facts"): 0.5,
    }
