"""What `parley doctor` looks at. Every check only reads: it makes, mends and moves nothing."""

from parley.cli._checks.finding import Finding, Level
from parley.cli._checks.rounds import examine

__all__ = ["Finding", "Level", "examine"]
