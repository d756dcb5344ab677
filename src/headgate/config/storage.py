"""`[tables] storage`: the options of the object store that tables and checkpoints are on.

Options have the names of AWS's own variables, and a variable of the environment counts where the configuration has no
such option. Credentials are taken from one of the two as a whole. No error shows a value.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headgate.base.locations import Location, ObjectLocation
from headgate.config.model import Config
from headgate.config.values import STORAGE_OPTIONS

CREDENTIALS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
# Other names of the same option, of which the first that is set counts.
_OTHER_NAMES: Final = {
    "AWS_ENDPOINT_URL": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "AWS_REGION": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}


def storage_options(configured: Mapping[str, str], env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The options of the store, in the order of their names."""
    found: dict[str, str] = {}
    for name in STORAGE_OPTIONS:
        if name in CREDENTIALS and any(one in configured for one in CREDENTIALS):
            continue
        values = [env[other] for other in _OTHER_NAMES.get(name, (name,)) if env.get(other)]
        if values:
            found[name] = values[0]
    return tuple(sorted((found | dict(configured)).items()))


def with_storage(config: Config, env: Mapping[str, str]) -> Config:
    """The configuration whose locations on an object store carry the options of that store."""
    if not isinstance(config.tables.path, ObjectLocation) and not isinstance(
        config.pipeline.checkpoint, ObjectLocation
    ):
        return config
    options = storage_options(config.tables.storage, env)
    return replace(
        config,
        tables=replace(config.tables, path=located(config.tables.path, options)),
        pipeline=replace(config.pipeline, checkpoint=located(config.pipeline.checkpoint, options)),
    )


def located(location: Location, options: tuple[tuple[str, str], ...]) -> Location:
    return location.with_options(options) if isinstance(location, ObjectLocation) else location
