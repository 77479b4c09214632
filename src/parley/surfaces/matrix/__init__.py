"""Matrix: people talk to the agent in rooms of a homeserver, encrypted ones too."""
