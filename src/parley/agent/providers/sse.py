"""Server-sent events, read from bytes as they come: pure, and the same for any chunking."""

from __future__ import annotations

from dataclasses import dataclass

from parley.protocol import ParleyError

__all__ = ["SseError", "SseEvent", "SseParser"]

_BOM = b"\xef\xbb\xbf"


class SseError(ParleyError):
    """The stream holds an event that is too large to be one."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event. `id` is the last one the stream named, this event's or an earlier one's."""

    data: str
    event: str = "message"
    id: str = ""


class SseParser:
    """Feed it bytes in any pieces, take the events that they complete.

    Once it has raised it stays at that: what follows a torn event cannot be trusted.
    """

    def __init__(self, *, limit: int = 4 * 1024 * 1024) -> None:
        self.retry_milliseconds: int | None = None
        self._limit = limit
        self._unfinished: list[bytes] = []  # pieces of the last line, joined once it ends
        self._unfinished_size = 0
        self._after_return = False  # the last chunk ended with \r: a \n now belongs to it
        self._at_start = True
        self._data: list[bytes] = []
        self._size = 0
        self._event = ""
        self._id = ""
        self._fault: SseError | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that `chunk` completes; raise `SseError` when one is too large."""
        if self._fault is not None:
            raise self._fault
        if self._after_return and chunk:
            self._after_return = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._after_return = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *lines = chunk.split(b"\n")
        if not lines:
            return self._keep(first, [])
        if self._unfinished:
            self._unfinished.append(first)
            first = b"".join(self._unfinished)
            self._unfinished.clear()
            self._unfinished_size = 0
        last = lines.pop()
        return self._keep(last, self._read([first, *lines]))

    def finish(self) -> list[SseEvent]:
        """The stream is over: return the event that its last lines hold, blank line or not."""
        if self._fault is not None:
            raise self._fault
        line = b"".join(self._unfinished)
        self._unfinished.clear()
        self._unfinished_size = 0
        return self._read([line, b""])

    def _keep(self, piece: bytes, events: list[SseEvent]) -> list[SseEvent]:
        if piece and self._fault is None:
            self._unfinished.append(piece)
            self._unfinished_size += len(piece)
            self._measure(self._unfinished_size)
        return self._or_fault(events)

    def _measure(self, length: int) -> None:
        if self._size + length > self._limit:
            self._fault = SseError(
                f"The server sent an event of more than {self._limit} bytes, which is no reply."
            )
            self._unfinished.clear()
            self._data.clear()

    def _or_fault(self, events: list[SseEvent]) -> list[SseEvent]:
        # What came whole before the fault is still handed out; the next call raises.
        if self._fault is not None and not events:
            raise self._fault
        return events

    def _read(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        for raw in lines:
            self._measure(len(raw))
            if self._fault is not None:
                break
            line = raw
            if self._at_start:
                self._at_start = False
                line = raw.removeprefix(_BOM)
            if not line:
                if self._data:
                    text = b"\n".join(self._data).decode("utf-8", "replace")
                    events.append(SseEvent(text, self._event or "message", self._id))
                    self._data.clear()
                    self._size = 0
                self._event = ""
            elif line.startswith(b"data:"):
                self._add(line[6:] if line[5:6] == b" " else line[5:])
            else:
                self._field(line)
        return events

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._size += len(value) + 1

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry_milliseconds = int(value[:18])
