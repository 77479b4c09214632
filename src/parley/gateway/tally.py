"""What one profile did since its gateway started, counted."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    accepted: int = 0
    answered: int = 0
    failed: int = 0
    delivered: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
