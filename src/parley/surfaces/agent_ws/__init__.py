"""The server end of the direct-agent protocol: `/agent_ws/` on the gateway's HTTP site."""
