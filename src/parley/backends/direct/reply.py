"""An agent's answer, put together from its events. Pure."""

from __future__ import annotations

from typing import Final as Constant

from parley.backends.direct.events import AgentEvent, Chunk, Reset, ToolUsed, Working
from parley.backends.direct.faults import (
    AGENT_CLOSED,
    AGENT_TIMEOUT,
    GRACEFUL_DISCONNECT,
    FarAgent,
    PlatformError,
)
from parley.backends.direct.letters import Letters
from parley.protocol import (
    REMOTE_AGENT,
    Attachment,
    ChatMessage,
    Failed,
    Final,
    StepTaken,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    Usage,
)

__all__ = ["Reply"]

_TORN: Constant = frozenset({AGENT_CLOSED, AGENT_TIMEOUT, GRACEFUL_DISCONNECT})
_LOST: Constant = "The connection to the agent was lost here; this answer is incomplete."
_LATER: Constant = "The agent works on this in the background, and says more when it is done."
_MOST_FILES: Constant = 32


class Reply:
    """Take its events in order; then `finish`, or `fail` where it broke off."""

    def __init__(self, far: FarAgent) -> None:
        self._far = far
        self._letters = Letters(far)
        self._pieces: list[str] = []
        self._files: list[Attachment] = []
        self._steps: set[str] = set()

    def take(self, event: AgentEvent) -> list[TurnEvent]:
        """What it means for the turn; raises `PlatformError` for what no answer holds."""
        match event:
            case Chunk(text=piece):
                return self._say(self._letters.feed(piece))
            case Working():
                return []
            case Reset():
                self._withdraw()
                return [TextReset()]
            case ToolUsed(state="started"):
                return [*self._step(), ToolStarted(ToolCall(event.id, event.name))]
            case ToolUsed():
                return [ToolFinished(ToolCall(event.id, event.name), ok=event.ok)]
            case _:
                raise self._far.broken("sent a frame that belongs to no answer")

    def begin_again(self) -> list[TurnEvent]:
        """It is told once more from its start."""
        shown = bool(self._pieces)
        self._withdraw()
        self._files.clear()
        return [TextReset()] if shown else []

    def add(self, file: Attachment) -> None:
        if len(self._files) == _MOST_FILES:
            raise self._far.broken("sent more than any answer can be")
        self._files.append(file)

    def finish(self, *, tokens: int, pending: int, is_request: bool, later: bool) -> Final | Failed:
        """The whole answer. `later`: what comes after it can still be delivered."""
        self._say(self._letters.finish())
        text = "".join(self._pieces).strip()
        usage = Usage("direct", "agent", output_tokens=tokens) if tokens else None
        if not text and not self._files:
            if pending and later:
                return Final(_LATER, usage)
            if pending:
                what = "works on this in the background, and its result cannot be delivered here; "
                what += "ask where you can be reached."
                return self._nothing(what, "later", usage, kind="unsupported")
            how = "ask again" if is_request else "`/retry` asks it again"
            return self._nothing(f"gave an empty answer; {how}.", "empty", usage, kind="broken")
        return Final(text, usage, attachments=tuple(self._files))

    def _nothing(self, what: str, cause: str, usage: Usage | None, *, kind: str) -> Failed:
        sentence, public = f"The agent at {self._far.shown} {what}", f"The agent {what}"
        return Failed(sentence, cause=f"direct: {cause}", usage=usage, kind=kind, public=public)

    def fail(self, error: PlatformError, *, is_request: bool) -> Final | Failed:
        """What arrived of a broken answer is kept and marked, unless a program reads it."""
        text = "".join(self._pieces).strip()
        if text and error.code in _TORN and not is_request:
            files = tuple(self._files)
            return Final(f"{text}\n\n({_LOST})", complete=False, attachments=files)
        return Failed(str(error), cause=f"direct: {error.code}", kind=error.kind)

    def _say(self, text: str) -> list[TurnEvent]:
        if not text:
            return []
        self._pieces.append(text)
        return [TextDelta(text, outside=REMOTE_AGENT)]

    def _step(self) -> list[TurnEvent]:
        """What was said before a tool is a message of its own."""
        text = "".join(self._pieces)
        self._withdraw()
        if not text.strip() or text in self._steps:
            return []
        self._steps.add(text)
        return [StepTaken((ChatMessage("assistant", text, outside=REMOTE_AGENT),))]

    def _withdraw(self) -> None:
        self._pieces.clear()
        self._letters.finish()
