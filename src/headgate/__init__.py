"""Headgate: a gateway in front of a Kafka cluster that gives its operators a map and a brake."""

from importlib.metadata import version

__version__ = version("headgate")
