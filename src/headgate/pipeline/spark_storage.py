"""What Spark needs for tables and checkpoints on an object store: addresses, settings, and a log store for commits.

Spark's own log store looks whether a version exists and then writes it whatever has come meanwhile, so that a commit of
another writer can be lost. `headgate.s3.ConditionalLogStore`, in the jar beside those of `s3a`, creates it only if it
is absent. The option `create` of `fs.s3a.performance.flags` would make every creation an overwrite, and is refused.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from headgate.base.errors import UsageError
from headgate.base.locations import Location, ObjectLocation

LOG_STORE: Final = "headgate.s3.ConditionalLogStore"
_S3A: Final = "spark.hadoop.fs.s3a."
_UNSAFE: Final = {"create", "*"}
_PROVIDERS: Final = "org.apache.hadoop.fs.s3a."


def spark_address(place: Location | str) -> str:
    """The address of a file or folder for Spark, which knows s3:// as s3a://."""
    text = str(place)
    return f"s3a://{text.removeprefix('s3://')}" if text.startswith("s3://") else text


def make_folder(folder: Location) -> None:
    """An object store has no folders to make."""
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)


def uses_object_store(locations: Iterable[Location]) -> bool:
    return any(isinstance(one, ObjectLocation) for one in locations)


def storage_settings(locations: Iterable[Location], configured: Mapping[str, str]) -> dict[str, str]:
    """Settings of Spark for these locations; none when all are folders. What the operator configured wins."""
    stores = [one for one in locations if isinstance(one, ObjectLocation)]
    if not stores:
        return {}
    check_flags(configured)
    options = dict(stores[0].options)  # all locations have the same store
    settings = {
        "spark.delta.logStore.s3a.impl": LOG_STORE,
        f"{_S3A}path.style.access": "true",
        f"{_S3A}connection.establish.timeout": "5s",
        f"{_S3A}attempts.maximum": "5",
    }
    if "AWS_ENDPOINT_URL" in options:
        endpoint = options["AWS_ENDPOINT_URL"]
        settings[f"{_S3A}endpoint"] = endpoint
        settings[f"{_S3A}connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
    if "AWS_REGION" in options:
        settings[f"{_S3A}endpoint.region"] = options["AWS_REGION"]
    if "AWS_ACCESS_KEY_ID" in options:
        kind = "Temporary" if "AWS_SESSION_TOKEN" in options else "Simple"
        settings[f"{_S3A}aws.credentials.provider"] = f"{_PROVIDERS}{kind}AWSCredentialsProvider"
        settings[f"{_S3A}access.key"] = options["AWS_ACCESS_KEY_ID"]
        settings[f"{_S3A}secret.key"] = options.get("AWS_SECRET_ACCESS_KEY", "")
        if "AWS_SESSION_TOKEN" in options:
            settings[f"{_S3A}session.token"] = options["AWS_SESSION_TOKEN"]
    return {name: value for name, value in settings.items() if name not in configured}


def check_flags(configured: Mapping[str, str]) -> None:
    """`UsageError` for settings that make a creation overwrite what exists."""
    for name, value in configured.items():
        flags = {flag.strip().lower() for flag in value.split(",")}
        if name.startswith(_S3A) and name.endswith("performance.flags") and flags & _UNSAFE:
            raise UsageError(f"pipeline.spark: {name}: with `create` commits overwrite each other: leave it out")
        if name.startswith(_S3A) and name.endswith("create.performance") and value.lower() == "true":
            raise UsageError(f"pipeline.spark: {name}: with it commits overwrite each other: leave it out")
