"""The group configs that the broker does not know: eight of KIP-1316, two of KIP-1191, and two that pause and resume.

Values are validated, and errors worded, as a broker's own ConfigDef does it; `ConfigRules` adds the operator's. `check`
validates a value that a caller sets. `settings_of` reads stored values and never fails, because another version may
have written them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

BREAKER_ENABLE = "share.group.dlq.circuit.breaker.enable"
THRESHOLD_PERCENT = "share.group.dlq.circuit.breaker.threshold.percent"
WINDOW_MS = "share.group.dlq.circuit.breaker.window.ms"
MIN_MESSAGES = "share.group.dlq.circuit.breaker.min.messages"
AUTO_RESUME_ENABLE = "share.group.dlq.circuit.breaker.auto.resume.enable"
AUTO_RESUME_MS = "share.group.dlq.circuit.breaker.auto.resume.ms"
WRITE_TIMEOUT_MS = "share.group.dlq.write.timeout.ms"
STRICT_ISOLATION = "share.group.dlq.strict.isolation"
DLQ_TOPIC = "errors.deadletterqueue.topic.name"
COPY_RECORD = "errors.deadletterqueue.copy.record.enable"

# The broker's own config; Headgate keeps the user's value while the group has a dead-letter topic.
LIMIT = "share.delivery.count.limit"

# Write-only: the value is the reason.
PAUSE = "headgate.pause"
RESUME = "headgate.resume"
PARKED = "headgate.parked"  # read-only, and described only when it is requested by name

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
MAX_REASON_CHARACTERS = 1_000
# An error message repeats the value, which the client chose.
MAX_SHOWN_CHARACTERS = 300
MAX_TOPIC_NAME = 249

# Java's String.trim removes these; Python's strip removes more.
_BLANKS = "".join(map(chr, range(0x21)))
# The longest LONG has 19 digits; leading zeros are fine, a megabyte of them is not.
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class ConfigKind(IntEnum):
    """The numbers of DescribeConfigs' `ConfigType`."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDef:
    """One config; `least` and `most` bound numbers."""

    name: str
    kind: ConfigKind
    default: str | None
    documentation: str
    least: int = 1
    most: int = LONG_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRules:
    """Restrictions by the operator of this gateway."""

    dlq_prefix: str = "dlq."
    pause_enable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The effective settings of a group; `limit` is None when the user has set none."""

    breaker_enable: bool = False
    threshold_percent: int = 20
    window_ms: int = 60_000
    min_messages: int = 100
    auto_resume_enable: bool = False
    auto_resume_ms: int = 300_000
    write_timeout_ms: int = 30_000
    strict_isolation: bool = False
    dlq_topic: str | None = None
    copy_record: bool = False
    limit: int | None = None


def _boolean(name: str, documentation: str) -> ConfigDef:
    return ConfigDef(name=name, kind=ConfigKind.BOOLEAN, default="false", documentation=documentation)


def _number(
    name: str, kind: ConfigKind, default: int, documentation: str, *, least: int = 1, most: int = LONG_MAX
) -> ConfigDef:
    text = str(default)
    return ConfigDef(name=name, kind=kind, default=text, documentation=documentation, least=least, most=most)


_DEFS = (
    _boolean(BREAKER_ENABLE, "Whether the share group is paused when too many of its records become dead letters."),
    _number(
        THRESHOLD_PERCENT,
        ConfigKind.INT,
        20,
        "How many of a hundred records within the window must become dead letters to pause the group.",
        most=100,
    ),
    _number(
        WINDOW_MS,
        ConfigKind.LONG,
        60_000,
        "How long the rolling window is over which dead letters are counted; it moves by whole seconds.",
        least=1_000,  # a bucket is a second
        most=DAY_MS,  # a bucket takes memory
    ),
    _number(
        MIN_MESSAGES,
        ConfigKind.INT,
        100,
        "How many records the window must hold before it can pause the group.",
        most=INT_MAX,
    ),
    _boolean(AUTO_RESUME_ENABLE, "Whether a group that its circuit breaker paused resumes automatically."),
    _number(
        AUTO_RESUME_MS,
        ConfigKind.LONG,
        300_000,
        "After how long a group that its circuit breaker paused resumes automatically.",
        most=YEAR_MS,  # it is added to the time of the trip, and the sum must still be a time
    ),
    _number(
        WRITE_TIMEOUT_MS,
        ConfigKind.LONG,
        30_000,
        "How long a dead letter may take to be written to its topic before that is reported; it stays in the spool.",
    ),
    _boolean(
        STRICT_ISOLATION, "Whether members are refused while another share group had this dead-letter topic first."
    ),
    ConfigDef(
        name=DLQ_TOPIC,
        kind=ConfigKind.STRING,
        default=None,
        documentation="The topic for the dead letters of the share group; without it there are none.",
    ),
    _boolean(COPY_RECORD, "Whether a dead letter has the key and the value of its record."),
)
OWN: Mapping[str, ConfigDef] = MappingProxyType({one.name: one for one in _DEFS})


def check(name: str, value: str, rules: ConfigRules) -> str | None:
    """None when the value is valid, else the error message for INVALID_CONFIG."""
    if name in {PAUSE, RESUME}:
        too_long = len(value) > MAX_REASON_CHARACTERS
        text = f"Reason must be no longer than {MAX_REASON_CHARACTERS} characters"
        return _invalid(name, value, text) if too_long else None
    one = OWN.get(name)
    if one is None:
        return f"Unknown group config name: {_shown(name)}"
    parsed = _parsed(one, value)
    if isinstance(parsed, _InvalidValue):
        return _invalid(name, parsed.value, parsed.text)
    if name == DLQ_TOPIC:
        assert isinstance(parsed, str)
        problem = _topic_problem(parsed, rules.dlq_prefix)
        return None if problem is None else _invalid(name, parsed, problem)
    if name == BREAKER_ENABLE and parsed is True and not rules.pause_enable:
        return _invalid(
            name,
            "true",
            "The circuit breaker needs pausing of share groups (KIP-1249), which this gateway has switched off: "
            "set share_groups.pause_enable=true",
        )
    return None


def settings_of(values: Mapping[str, str]) -> GroupSettings:
    """The settings that these values mean; an invalid or missing value is its default."""

    def boolean(name: str) -> bool:
        parsed = _value_of(name, values)
        assert isinstance(parsed, bool)
        return parsed

    def number(name: str) -> int:
        parsed = _value_of(name, values)
        assert isinstance(parsed, int)
        return parsed

    topic = values.get(DLQ_TOPIC, "").strip(_BLANKS)
    return GroupSettings(
        breaker_enable=boolean(BREAKER_ENABLE),
        threshold_percent=number(THRESHOLD_PERCENT),
        window_ms=number(WINDOW_MS),
        min_messages=number(MIN_MESSAGES),
        auto_resume_enable=boolean(AUTO_RESUME_ENABLE),
        auto_resume_ms=number(AUTO_RESUME_MS),
        write_timeout_ms=number(WRITE_TIMEOUT_MS),
        strict_isolation=boolean(STRICT_ISOLATION),
        dlq_topic=topic if _topic_problem(topic, "") is None else None,
        copy_record=boolean(COPY_RECORD),
        limit=_whole(values.get(LIMIT, ""), INT_MAX),
    )


@dataclass(frozen=True, slots=True)
class _InvalidValue:
    """An error and the value that it shows: a number out of range without its blanks, any other as it came."""

    value: str
    text: str


def _parsed(one: ConfigDef, value: str) -> bool | int | str | _InvalidValue:
    trimmed = value.strip(_BLANKS)
    match one.kind:
        case ConfigKind.BOOLEAN:
            lower = trimmed.lower()
            return (
                lower == "true"
                if lower in {"true", "false"}
                else _InvalidValue(value, "Expected value to be either true or false")
            )
        case ConfigKind.STRING:
            return trimmed
        case ConfigKind.INT | ConfigKind.LONG:
            most = INT_MAX if one.kind is ConfigKind.INT else LONG_MAX
            number = int(trimmed) if _NUMBER.fullmatch(trimmed) else None
            if number is None or not -most - 1 <= number <= most:
                return _InvalidValue(value, f"Not a number of type {one.kind.name}")
            if number < one.least:
                return _InvalidValue(str(number), f"Value must be at least {one.least}")
            if number > one.most:
                return _InvalidValue(str(number), f"Value must be no more than {one.most}")
            return number


def _value_of(name: str, values: Mapping[str, str]) -> bool | int | str:
    one = OWN[name]
    assert one.default is not None
    parsed = _parsed(one, values.get(name, one.default))
    if isinstance(parsed, _InvalidValue):
        parsed = _parsed(one, one.default)
        assert not isinstance(parsed, _InvalidValue)
    return parsed


def _whole(value: str, most: int) -> int | None:
    trimmed = value.strip(_BLANKS)
    number = int(trimmed) if _NUMBER.fullmatch(trimmed) else 0
    return number if 1 <= number <= most else None


def _topic_problem(name: str, prefix: str) -> str | None:
    """The error of Kafka's `Topic.validate`, or of the two rules of KIP-1191."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in {".", ".."}:
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME:
        length = f"longer than the max allowed length {MAX_TOPIC_NAME}"
        return f"Topic name is invalid: the length of '{_shown(name)}' is {length}"
    if not _TOPIC_NAME.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    if name.startswith("__"):
        return "Dead-letter topic name must not start with '__'"
    if not name.startswith(prefix):
        return f"Dead-letter topic name must start with '{prefix}'"
    return None


def _invalid(name: str, value: str, text: str) -> str:
    return f"Invalid value {_shown(value)} for configuration {name}: {text}"


def _shown(value: str) -> str:
    return value if len(value) <= MAX_SHOWN_CHARACTERS else f"{value[:MAX_SHOWN_CHARACTERS]}..."
