"""The gateway: sockets, back-pressure, and the interceptors that open the few calls that are opened."""
