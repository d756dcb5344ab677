"""The Spark schema of a fact's declaration reads its records: no field is lost, and none has another type."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from headgate.facts.codec import FORMS, FactForm, spark_schema
from tests.unit.facts.test_golden import GOLDEN

WITH_VALUE = [form for form in FORMS if form.value is not None]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("form", WITH_VALUE, ids=lambda form: form.cls.__name__)
def test_every_example_is_read_whole(spark: SparkSession, form: FactForm) -> None:
    values = [line["value"] for _, line in GOLDEN if line["fact"] == form.cls.__name__]
    texts = spark.createDataFrame([(json.dumps(value),) for value in values], "value string")
    read = texts.select(sf.to_json(sf.from_json("value", spark_schema(form.cls))).alias("value")).collect()
    known = {"v", *(member.name for member in form.members)}
    for value, row in zip(values, read, strict=True):
        wanted = {name: item for name, item in value.items() if name in known}
        if "detail" in wanted:  # an object without a schema is its text
            wanted["detail"] = json.dumps(wanted["detail"], separators=(",", ":"))
        found = json.loads(row["value"])
        if "detail" in found:
            found["detail"] = json.dumps(json.loads(found["detail"]), separators=(",", ":"))
        assert without_nulls(found) == without_nulls(wanted)
