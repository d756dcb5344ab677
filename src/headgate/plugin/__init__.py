"""What authors of plugins run against their own code."""
