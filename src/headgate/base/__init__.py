"""Errors, identifiers, clocks, background tasks and the log throttle. Imports no other part of Headgate."""
