"""The webhook surface: programs bring messages in over HTTP and get the answers posted back."""
