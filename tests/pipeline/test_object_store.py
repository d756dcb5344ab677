"""The pipeline with tables and checkpoints on an object store: it goes on where it was, and one at a time."""

from collections.abc import Iterator

import pytest

from headgate.base.errors import UsageError
from headgate.pipeline import pipeline_lock
from headgate.pipeline.pipeline_lock import only_pipeline
from headgate.pipeline.queries import FACTS
from headgate.pipeline.spark_storage import storage_settings
from headgate.tables.files import names_in
from tests.pipeline.estate import Estate
from tests.pipeline.histories import POOL, described
from tests.pipeline.test_append_query import BY_SPARK, activity, assert_appended_are_right
from tests.pipeline.test_facts_query import assert_tables_are_right, cluster_of
from tests.support.object_stores import moto_server


@pytest.fixture
def stored(estate: Estate) -> Iterator[Estate]:
    """An estate whose tables and checkpoints are on moto's server."""
    with moto_server() as store:
        estate.place = store.new_location()
        hadoop = estate.spark.sparkContext._jsc.hadoopConfiguration()
        for name, value in storage_settings((estate.place,), {}).items():
            if name.startswith("spark.hadoop."):
                hadoop.set(name.removeprefix("spark.hadoop."), value)
        yield estate


def test_a_pipeline_on_an_object_store_goes_on_from_its_checkpoint(
    stored: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_lock, "RENEW_S", 0.05)
    config = stored.config
    for number in (1, 2):
        stored.write(described("g", POOL[number], at=number), activity(number))
        with only_pipeline(config):
            if number == 1:
                with pytest.raises(UsageError, match="another pipeline uses s3://"), only_pipeline(config):
                    pytest.fail("two pipelines at a time")
            assert stored.run(FACTS, BY_SPARK)
    for query in (FACTS, BY_SPARK):
        batches = names_in(config.pipeline.checkpoint / query.name / "commits")
        assert [name for name in batches if name.isdecimal()] == ["0", "1"], (
            "the second run began where the first ended"
        )
    assert_tables_are_right(stored, cluster_of(stored))
    assert_appended_are_right(stored)
    assert not (stored.folder / "tables").exists()
