"""The model that runs on this machine: its weights, the child process it lives in, its provider."""
