"""Real clients for the equivalence tests: scripts that are run as they are, direct and through the gateway."""
