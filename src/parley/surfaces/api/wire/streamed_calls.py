"""The calls a client was already sent a part of, and what may follow."""

from __future__ import annotations

from dataclasses import dataclass

from parley.agent.providers.calls import parse_arguments
from parley.protocol import CallDelta, ToolCall
from parley.surfaces.api.wire.encode import call_arguments
from parley.surfaces.api.wire.streamed_text import StreamDiverged, StreamedText

__all__ = ["CallPiece", "StreamedCalls"]


@dataclass(frozen=True, slots=True)
class CallPiece:
    """What to send of a call. `is_new`: the client has not heard of it before."""

    index: int
    call: ToolCall
    is_new: bool
    arguments: str


class StreamedCalls:
    """The calls of one answer on their way to one client.

    Like text they cannot be taken back: one that begins again goes on only if it is the same call
    and its arguments begin with what was sent.
    """

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        self._sent: list[_SentCall] = []

    def __len__(self) -> int:
        return len(self._sent)

    def arguments(self, index: int) -> str:
        """What was sent of the arguments."""
        return self._sent[index].text.sent

    def add(self, delta: CallDelta) -> CallPiece:
        is_new = delta.index == len(self._sent)
        if is_new:
            self._sent.append(_SentCall(ToolCall(delta.id, delta.name, {})))
        sent = self._sent[delta.index]
        if (sent.call.id, sent.call.name) != (delta.id, delta.name):
            raise StreamDiverged
        return CallPiece(delta.index, sent.call, is_new, sent.add(delta.arguments))

    def begin_again(self) -> None:
        """The calls are written once more from their start."""
        for sent in self._sent:
            sent.text.begin_again()
            sent.held = ""

    def clear(self) -> None:
        """Forget what was sent: the client was told to do the same."""
        self._sent.clear()

    def rest_of(self, calls: tuple[ToolCall, ...]) -> list[CallPiece]:
        """What to send so that the client has the whole of `calls`; may be nothing of some."""
        if len(calls) < len(self._sent):
            raise StreamDiverged
        pieces = []
        for index, call in enumerate(calls):
            if index == len(self._sent):
                self._sent.append(_SentCall(call))
                pieces.append(CallPiece(index, call, True, self._sent[index].rest_of(call)))
            else:
                pieces.append(CallPiece(index, call, False, self._sent[index].rest_of(call)))
        return pieces


class _SentCall:
    """One of them. Arguments are sent as they come only where they begin as an object does.

    What some servers write in its place (nothing, null, a text in quotes) is put right first.
    """

    __slots__ = ("call", "held", "text")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.held = ""
        self.text = StreamedText()

    def add(self, arguments: str) -> str:
        if self.text.sent:
            return self.text.add(arguments)
        self.held += arguments
        if not self.held.lstrip().startswith("{"):
            return ""
        held, self.held = self.held, ""
        return self.text.add(held)

    def rest_of(self, call: ToolCall) -> str:
        sent, whole = self.text.sent, call_arguments(call)
        if (self.call.id, self.call.name) != (call.id, call.name):
            raise StreamDiverged
        if sent == whole or (sent and parse_arguments(sent) == call.arguments):
            return ""
        if not whole.startswith(sent):
            raise StreamDiverged
        self.text.clear()
        self.text.add(whole)
        return whole[len(sent) :]
