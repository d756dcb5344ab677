"""Topology stores behind the plugin port: memory:, sqlite:, kafka:, and whatever plugin: names."""
