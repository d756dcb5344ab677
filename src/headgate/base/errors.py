"""The root of Headgate's errors, split by who must act.

An error's text says what is wrong, where, and what to do. It is translated once, at the edge: into a Kafka error code,
an HTTP status or an exit code. A rejection by a rule is a value, never one of these.
"""

from typing import Final

INTERRUPTED: Final = 130  # the exit code of a command that SIGINT ended


class HeadgateError(Exception):
    """Root of all errors that Headgate raises on purpose; `exit_code` is what the command line ends with."""

    exit_code = 1


class UsageError(HeadgateError):
    """The operator's command or configuration is wrong: nothing was started, the text names what to change."""

    exit_code = 2


class WireError(HeadgateError):
    """The peer sent bytes that no Kafka message has: its connection must be closed."""


class ClusterError(HeadgateError):
    """The Kafka cluster cannot be reached, or is not the one that it should be."""


class PlatformError(HeadgateError):
    """The machine lacks something: a free port, a Java runtime, disk space."""
