"""Which calls a feature of Headgate needs, and what is off at a broker that lacks one.

One rule: a broker is believed, never guessed: it names its calls in ApiVersions and the levels of its features beside
them. A call that is missing switches a feature off and nothing else; only without the calls of the gateway itself is
there nothing to stand in front of.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from headgate.config.model import Config
from headgate.doctor.commands import KafkaTools
from headgate.doctor.findings import Check, Finding, ok, problem, warning
from headgate.wire.apis import api_name

Versions = Mapping[int, tuple[int, int]]  # api key to lowest and highest version


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What it is called, the calls with the version that it uses, and the Kafka features with their lowest level."""

    name: str
    calls: Mapping[int, int]
    levels: Mapping[str, int] = field(default_factory=dict)
    is_wanted: Callable[[Config], bool]
    switch: str  # the line that switches it off, empty when nothing does
    since: str  # the oldest Kafka that has all of it


FEATURES: tuple[Feature, ...] = (
    Feature(
        name="the gateway itself",
        calls={3: 12, 18: 3},
        is_wanted=lambda _: True,
        switch="",
        since="3.1",
    ),
    Feature(
        name="the service account",
        calls={17: 1, 36: 2},
        is_wanted=lambda config: config.upstream.service_user is not None,
        switch="",
        since="2.5",
    ),
    Feature(
        name="topology descriptions",
        calls={12: 4, 42: 2, 88: 0, 89: 0},
        levels={"streams.version": 1},
        is_wanted=lambda config: config.topologies.owner == "gateway",
        switch='topologies.owner = "off"',
        since="4.2",
    ),
    Feature(
        name="dead letters and the circuit breaker",
        calls={12: 4, 32: 4, 44: 1, 76: 1, 77: 1, 78: 1, 79: 1},
        levels={"share.version": 1},
        is_wanted=lambda config: config.share_groups.enable,
        switch="share_groups.enable = false",
        since="4.2",
    ),
)


def examine(
    broker: str, versions: Versions, levels: Mapping[str, int], config: Config, tools: KafkaTools
) -> Iterator[Finding]:
    """What this broker switches off, or that it switches off nothing."""
    in_order = True
    for feature in FEATURES:
        if not feature.is_wanted(config):
            continue
        missing = [
            f"{api_name(key)} v{version}" for key, version in feature.calls.items() if not _has(versions, key, version)
        ]
        low = {name: level for name, level in feature.levels.items() if levels.get(name, 0) < level}
        if not missing and not low:
            continue
        in_order = False
        if missing:
            lack = f"has no {', '.join(missing)}"
            mend = f"upgrade the broker to Kafka {feature.since} or newer"
        else:
            lack = f"has {', '.join(f'{name} at level {levels.get(name, 0)}' for name in low)}"
            mend = " && ".join(tools.upgrade_feature(name, level) for name, level in low.items())
        if feature.switch:
            text = f"{lack}, so {feature.name} is off for what this broker serves"
            yield warning(Check.VERSIONS, broker, text, mend=f"{mend}; or do without: {feature.switch}")
        else:
            yield problem(Check.VERSIONS, broker, f"{lack}, and {feature.name} does not work without", mend=mend)
    if in_order:
        level = levels.get("metadata.version")
        told = "" if level is None else f" (metadata.version is at level {level})"
        yield ok(Check.VERSIONS, broker, f"has every call that the features that are on need{told}")


def _has(versions: Versions, key: int, version: int) -> bool:
    low, high = versions.get(key, (0, -1))
    return low <= version <= high
