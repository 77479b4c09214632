"""Commands: answered by the gateway itself, on every surface alike."""

from parley.gateway.commands.base import Command, CommandCall, Reach, Reply
from parley.gateway.commands.registry import COMMANDS, looks_like_command
from parley.gateway.commands.running import Commands

__all__ = ["COMMANDS", "Command", "CommandCall", "Commands", "Reach", "Reply", "looks_like_command"]
