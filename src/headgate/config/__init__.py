"""One immutable configuration, validated as a whole; all problems are reported at once, each with its path."""

from headgate.config.addresses import Address
from headgate.config.loading import check, load
from headgate.config.model import Config
from headgate.config.problems import ConfigError, Problem

__all__ = ["Address", "Config", "ConfigError", "Problem", "check", "load"]
