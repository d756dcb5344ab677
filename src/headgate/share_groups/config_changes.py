"""What one resource of a config change wants: which of its configs are ours, and which are the broker's.

One rule: nothing is decided twice. What is broken in form, or an operation that only lists have, goes to the broker as
it came, which refuses the whole resource in its own words, since it does not know our names.

`share.delivery.count.limit` is ours while the group has a dead-letter topic, and also in the change that gives or takes
one: the broker is then asked whether it would take the value, and its own is set by the service.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headgate.share_groups.model.group_configs import (
    DLQ_TOPIC,
    LIMIT,
    OWN,
    PAUSE,
    RESUME,
    ConfigRules,
    check,
    settings_of,
)
from headgate.share_groups.model.group_state import GroupState
from headgate.wire.messages.configs import IncrementalConfig

SET, DELETE = 0, 1
STEERING: Final = frozenset((PAUSE, RESUME))
OUR_NAMES: Final = frozenset((*OWN, *STEERING))


class Step(Enum):
    """What an operator wants of a group beside its configs."""

    PAUSE = PAUSE
    RESUME = RESUME


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A resource in which something is ours.

    `tried` is what the broker is asked whether it would take it, `rest` what it is then to take. `problem` is a text
    for INVALID_CONFIG. `is_broken`: the broker refuses `tried`, and nothing of it is ours to do.
    """

    group: str
    tried: tuple[IncrementalConfig, ...]
    rest: tuple[IncrementalConfig, ...]
    changes: Mapping[str, str | None]
    step: Step | None = None
    reason: str = ""
    problem: str | None = None
    is_broken: bool = False

    @property
    def new_topic(self) -> str | None:
        """The dead-letter topic that it sets."""
        value = self.changes.get(DLQ_TOPIC)
        return None if value is None else settings_of({DLQ_TOPIC: value}).dlq_topic


def wish_of(
    group: str, configs: Sequence[IncrementalConfig], state: GroupState, rules: ConfigRules, *, replaces: bool
) -> Wish | None:
    """None when nothing of it is ours. `replaces`: what is not named has its default again, as in AlterConfigs."""
    names = [one.name for one in configs]
    ours = [one for one in configs if one.name in OUR_NAMES]
    if _is_broken(configs, names):
        everything = tuple(configs)
        return Wish(group=group, tried=everything, rest=(), changes={}, is_broken=True) if ours else None
    changes: dict[str, str | None] = {name: None for name in state.values if name != LIMIT} if replaces else {}
    changes |= {one.name: _value(one) for one in ours if one.name not in STEERING}
    owns_limit = state.settings.dlq_topic is not None or changes.get(DLQ_TOPIC) is not None
    limits = [one for one in configs if one.name == LIMIT] if owns_limit else []
    if limits or (replaces and owns_limit):
        changes[LIMIT] = _value(limits[0]) if limits else None
    if not ours and not changes:
        return None
    rest = tuple(one for one in configs if one.name not in OUR_NAMES and one not in limits)
    steps = [one for one in ours if one.name in STEERING]
    return Wish(
        group=group,
        tried=(*rest, *limits),
        rest=rest,
        changes=changes,
        step=Step(steps[0].name) if steps else None,
        reason=(steps[0].value or "").strip() if steps else "",
        problem=_problem(ours, rules, replaces=replaces),
    )


def _value(config: IncrementalConfig) -> str | None:
    return None if config.config_operation == DELETE else config.value


def _is_broken(configs: Sequence[IncrementalConfig], names: Sequence[str]) -> bool:
    if len(set(names)) != len(names):
        return True
    return any(
        (one.value is None and one.config_operation != DELETE)
        or (one.name in OUR_NAMES and one.config_operation not in (SET, DELETE))
        for one in configs
    )


def _problem(ours: Sequence[IncrementalConfig], rules: ConfigRules, *, replaces: bool) -> str | None:
    """The first thing that is wrong, as a broker words it."""
    steps = [one for one in ours if one.name in STEERING]
    if len(steps) > 1:
        return f"{PAUSE} and {RESUME} cannot be set together"
    for one in ours:
        value = _value(one)
        if one.name in STEERING:
            text = _step_problem(one.name, value, rules, replaces=replaces)
        else:
            text = None if value is None else check(one.name, value, rules)
        if text is not None:
            return text
    return None


def _step_problem(name: str, value: str | None, rules: ConfigRules, *, replaces: bool) -> str | None:
    if value is None:
        return f"{name} cannot be deleted: it is not kept, only done when it is set"
    if replaces:
        return f"{name} can be set by IncrementalAlterConfigs only: AlterConfigs replaces all configs of the group"
    if not value.strip():
        return f"Invalid value {value} for configuration {name}: Reason must not be empty"
    if name == PAUSE and not rules.pause_enable:
        return (
            f"{name}: pausing of share groups (KIP-1249) is switched off in this gateway: "
            "set share_groups.pause_enable=true"
        )
    return check(name, value, rules)
