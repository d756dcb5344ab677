"""The ground floor: errors, identifiers, time and log keys. Imports nothing of Headgate."""
