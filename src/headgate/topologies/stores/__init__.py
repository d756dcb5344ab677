"""Topology stores: memory:, sqlite:, kafka:, and the loading of plugins."""
