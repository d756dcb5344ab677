"""What ended a batch, as a sentence."""

import pytest

from headgate.base.errors import ClusterError
from headgate.pipeline.batches import disk_is_full

SPARK = """An error occurred while calling o321.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 9.0 failed 1 times
java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)"""


def test_a_full_disk_is_one_sentence_whoever_found_it_full() -> None:
    found = disk_is_full(RuntimeError(SPARK))
    assert str(found).startswith("the disk is full: make room where the tables, the checkpoint and")
    assert "\n" not in str(found)


@pytest.mark.parametrize("other", [RuntimeError("no broker answers"), ClusterError(SPARK)])
def test_what_is_something_else_or_has_a_sentence_already_stays_as_it_is(other: Exception) -> None:
    assert disk_is_full(other) is None
