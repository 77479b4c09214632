"""Parley brings your AI agents into the chats you already use."""

__version__ = "0.1.0"
