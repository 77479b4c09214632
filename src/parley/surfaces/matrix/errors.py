"""What goes wrong between us and a homeserver."""

from __future__ import annotations

from parley.protocol import ParleyError

__all__ = ["MatrixFault", "reason_of"]


class MatrixFault(ParleyError):
    """The homeserver refused a call, or could not be reached: `status` is then 0.

    `code` is its `errcode`; `after` how many seconds it wants us to wait.
    """

    def __init__(
        self, sentence: str, *, status: int = 0, code: str = "", after: float | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.after = after

    @property
    def is_passing(self) -> bool:
        """Whether the same call may work later."""
        return self.status in {0, 408, 429} or self.status >= 500


def reason_of(error: BaseException) -> str:
    """Why a request failed, in a few words."""
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    cause = getattr(error, "os_error", error)
    text = str(getattr(cause, "verify_message", "") or getattr(cause, "strerror", "") or error)
    lines = text.strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
