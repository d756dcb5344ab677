"""What the core needs from the world: Protocol classes, and the contracts that go with them."""
