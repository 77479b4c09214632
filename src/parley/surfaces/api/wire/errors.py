"""What a program is told when its request cannot be read."""

from __future__ import annotations

from parley.protocol import ParleyError

__all__ = ["BadRequest"]


class BadRequest(ParleyError):
    """The request is refused: one sentence, the field it is about, and a word for programs."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
