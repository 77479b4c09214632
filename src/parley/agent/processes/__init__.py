"""Commands that run: each under a keeper of its own, which outlives the gateway."""

from __future__ import annotations

from parley.agent.processes.process import Ended, Matched, Output, Process, ProcessState, Spec
from parley.agent.processes.registry import Processes

__all__ = ["Ended", "Matched", "Output", "Process", "ProcessState", "Processes", "Spec"]
