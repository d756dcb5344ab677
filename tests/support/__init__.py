"""What the tests of several tiers share: ports, clusters, clients, recordings."""
