"""The terminal: `parley chat` talks to the gateway over a socket that only its owner opens."""
