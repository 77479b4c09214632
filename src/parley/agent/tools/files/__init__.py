"""The tools for files, and the hand that touches them in the workspace and nowhere else."""

from __future__ import annotations

from parley.agent.tools.files.file_hand import FileHand
from parley.agent.tools.files.tools import file_tools

__all__ = ["FileHand", "file_tools"]
