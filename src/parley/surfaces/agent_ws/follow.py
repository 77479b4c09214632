"""What the turns of this surface have said so far: whoever comes late is told it from the start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from parley.gateway.live import LiveEvent, TurnEnded, TurnStarted
from parley.protocol import (
    ApprovalAsked,
    ChatMessage,
    StepTaken,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
)
from parley.surfaces.api.asks import Happening
from parley.surfaces.api.stream import Mailbox

__all__ = ["Turns", "ends_step"]

_STEP = StepTaken((ChatMessage("assistant"),))


def ends_step(event: Happening) -> bool:
    """Whether a reply of the model is complete, and the turn goes on."""
    return isinstance(event, StepTaken) and any(said.role == "assistant" for said in event.messages)


@dataclass(slots=True)
class _Turn:
    """One turn. `log` is what a client needs to hear of it, text that follows text in one list."""

    runs: bool = False
    log: list[Happening | list[str]] = field(default_factory=list)
    boxes: list[Mailbox[Happening]] = field(default_factory=list)

    def note(self, event: Happening) -> None:
        match event:
            case TurnStarted():
                self.log.clear()
            case TextDelta(text=text):
                if self.log and isinstance(self.log[-1], list):
                    self.log[-1].append(text)
                else:
                    self.log.append([text])
            case TextReset():
                if self.log and isinstance(self.log[-1], list):
                    self.log.pop()
            case ToolStarted(call=call) | ToolFinished(call=call):
                self._answered(call.id)
                self.log.append(event)
            case ApprovalAsked():
                self.log.append(event)
            case _ if ends_step(event):
                self.log.append(_STEP)
            case _:
                pass

    def _answered(self, call: str) -> None:
        self.log = [
            each
            for each in self.log
            if not (isinstance(each, ApprovalAsked) and each.call.id == call)
        ]

    def again(self) -> Iterator[Happening]:
        for each in self.log:
            yield TextDelta("".join(each)) if isinstance(each, list) else each


class Turns:
    """All turns that run for this surface, by the requests they answer."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._turns)

    @contextmanager
    def watch(self, request: str) -> Iterator[Mailbox[Happening]]:
        """Be told all that happens in the turn of a request, and all that has happened."""
        turn = self._turns.setdefault(request, _Turn())
        box: Mailbox[Happening] = Mailbox()
        for event in turn.again():
            box.put(event)
        if self._closed:
            box.close()
        turn.boxes.append(box)
        try:
            yield box
        finally:
            turn.boxes.remove(box)
            self._forget(request, turn)

    def take(self, live: LiveEvent) -> None:
        """An event of a turn that answers some request."""
        request = live.request or ""
        turn = self._turns.get(request)
        if turn is None:
            if not live.lasting or isinstance(live.event, TurnEnded):
                return
            turn = self._turns[request] = _Turn()
        turn.runs = not isinstance(live.event, TurnEnded)
        turn.note(live.event)
        for box in turn.boxes:
            box.put(live.event)
        self._forget(request, turn)

    def rouse(self, request: str) -> None:
        """Whoever waits for it looks what became of it."""
        if (turn := self._turns.get(request)) is not None:
            for box in turn.boxes:
                box.put(TurnEnded(stopped=True))

    def close(self) -> None:
        """Nothing more comes."""
        self._closed = True
        for turn in self._turns.values():
            for box in turn.boxes:
                box.close()

    def _forget(self, request: str, turn: _Turn) -> None:
        if not turn.runs and not turn.boxes and self._turns.get(request) is turn:
            del self._turns[request]
