"""The text a client was already sent, and what may follow it.

A stream cannot take text back. When a model begins its answer again, the stream goes on only if the
new answer begins with what was sent; otherwise it ends with an error.
"""

from __future__ import annotations

from parley.protocol import Failed, ParleyError
from parley.surfaces.api.wire.encode import remainder

__all__ = ["StreamDiverged", "StreamedText"]


class StreamDiverged(ParleyError):
    """The answer contradicts what the client was already sent."""

    def __init__(self) -> None:
        self.failed = Failed(
            "The model broke off and began a different answer, which this stream cannot show; "
            "ask again.",
            cause="a stream cannot take back text",
            kind="broken",
        )
        super().__init__(self.failed.sentence)


class StreamedText:
    """The text of one answer on its way to one client.

    An answer may be several messages, one before each tool that is used. `gap` sets them apart
    for a client that has one text for all of them.
    """

    __slots__ = ("_again", "_before", "_gap", "_gap_due", "_sent")

    def __init__(self, gap: str = "") -> None:
        self._gap = gap
        self._gap_due = False
        self._before = ""  # the message before this one
        self._sent: list[str] = []
        self._again: str | None = None  # what was said since the answer began again

    @property
    def sent(self) -> str:
        """What was sent of this message."""
        return "".join(self._sent)

    def add(self, text: str) -> str:
        """What to send of `text`; raises `StreamDiverged` when it contradicts what was sent."""
        if self._again is None:
            self._sent.append(text)
            return text
        self._again += text
        [sent] = self._sent
        if not (self._again.startswith(sent) or sent.startswith(self._again)):
            raise StreamDiverged
        if len(self._again) < len(sent):
            return ""
        rest, self._sent, self._again = self._again[len(sent) :], [self._again], None
        return rest

    def begin_again(self) -> None:
        """The message is said once more from its start."""
        if self._sent:
            self._sent = [self.sent]
            self._again = ""

    def end_message(self) -> None:
        """What follows is another message."""
        said = self.sent
        if self._again is not None and said.strip() != self._again.strip():
            raise StreamDiverged
        self.clear()
        self._before = said
        self._gap_due = self._gap_due or bool(said.strip())

    def clear(self) -> None:
        """Forget what was sent: the client was told to do the same."""
        self._sent, self._again = [], None

    def drop_gap(self) -> None:
        """The client itself sets the messages apart."""
        self._gap_due = False

    def rest_of(self, reply: str) -> str:
        """What to send so that the client has the whole of `reply`, the last message."""
        if not self._sent and self._before.strip() == reply.strip():
            return ""  # it was said before the tools that were called with it
        rest = remainder(self.sent, reply)
        if rest is None:
            raise StreamDiverged
        return rest

    def take_gap(self) -> str:
        """What to send before the next text: the gap once after each message that ended."""
        due, self._gap_due = self._gap_due, False
        return self._gap if due else ""
