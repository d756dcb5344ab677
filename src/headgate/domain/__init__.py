"""Pure rules and state machines: no sockets, no clock, no chance. What is needed of the world comes in as arguments."""
