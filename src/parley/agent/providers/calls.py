"""Tool calls as models write them: put together from fragments, parsed, never lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from parley.protocol import CallDelta, ToolCall

__all__ = ["MALFORMED", "CallFragments", "apart", "new_call_id", "parse_arguments"]

MALFORMED = "__malformed__"
"""The one argument of a call whose arguments were not a JSON object: what the model wrote."""


def new_call_id() -> str:
    """An id for a call that came without: nine letters and digits, which every server takes."""
    return os.urandom(5).hex()[:9]


def apart(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls of one reply, each with an id of its own: a word for one is for no other."""
    known: dict[str, ToolCall] = {}
    for call in calls:
        id = new_call_id() if call.id in known else call.id
        known[id] = replace(call, id=id)
    return tuple(known.values())


def parse_arguments(raw: str) -> dict[str, Any]:
    """Read arguments: nothing is no arguments; what is no object is kept under `MALFORMED`."""
    if not raw.strip():
        return {}
    try:
        value = _DECODER.decode(raw.strip())
        if isinstance(value, str):  # some servers encode twice
            value = _DECODER.decode(value.strip()) if value.strip() else None
    except (ValueError, RecursionError):
        return {MALFORMED: raw}
    if value is None:
        return {}
    return value if isinstance(value, dict) else {MALFORMED: raw}


def _no_such_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")  # and could not be sent back to any server


_DECODER = json.JSONDecoder(parse_constant=_no_such_number)


class CallFragments:
    """The tool calls of one reply, from the fragments of an OpenAI stream.

    Servers differ: whole calls or fragments, an `index` or none, the same index for every call,
    no ids, arguments as an object. What says "a new call" is, in this order: another id, another
    index, a further entry of the same list, and a name after arguments that are complete.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._told = 0  # how many were told of

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, entries: object) -> list[CallDelta]:
        """Take one `tool_calls` list of a stream; return what it adds to calls with a name."""
        if not isinstance(entries, list):
            return []
        grown = [
            self._add(entry, position)
            for position, entry in enumerate(entries)
            if isinstance(entry, dict)
        ]
        begun = self._begun()
        return [*begun, *(call.delta() for call in grown if call.is_told and call.untold)]

    def finish(self) -> tuple[ToolCall, ...]:
        """Return the calls in the order they began; a call without a name is none."""
        return tuple(call.build() for call in self._calls if call.name)

    def _begun(self) -> list[CallDelta]:
        """Those to be told of for the first time, in order.

        Without a name one is no call: what comes after it waits, for it may get its place.
        """
        first = self._told
        while self._told < len(self._calls) and self._calls[self._told].name:
            self._told += 1
        return [call.delta() for call in self._calls[first : self._told]]

    def _add(self, entry: Mapping[str, Any], position: int) -> _Call:
        function = entry.get("function")
        if not isinstance(function, dict):
            function = {}
        call_id = entry.get("id")
        call_id = str(call_id) if call_id else ""
        name = function.get("name")
        name = name if isinstance(name, str) else ""
        index = entry.get("index")
        call = self._find(index if isinstance(index, int) else None, call_id, name, position)
        if not call.id:
            call.id = call_id
        if not call.name:
            call.name = name
        call.take(function.get("arguments"))
        return call

    def _find(self, index: int | None, call_id: str, name: str, position: int) -> _Call:
        if index is not None:
            known = self._by_index.get(index)
            if known is None or (call_id and known.id and known.id != call_id):
                known = self._by_index[index] = self._new()
            return known
        if call_id:
            for call in self._calls:
                if call.id == call_id:
                    return call
        last = self._calls[-1] if self._calls else None
        if (
            last is None
            or call_id
            or position > 0
            or (name and (name != last.name or last.is_whole()))
        ):
            return self._new()
        return last

    def _new(self) -> _Call:
        call = _Call(len(self._calls))
        self._calls.append(call)
        return call


class _Call:
    __slots__ = ("_pieces", "_place", "_whole", "id", "is_told", "name", "told_id", "untold")

    def __init__(self, place: int) -> None:
        self._place = place
        self.id = ""
        self.name = ""
        self.told_id = ""
        self.is_told = False
        self.untold: list[str] = []
        self._pieces: list[str] = []
        self._whole: dict[str, Any] | None = None

    def take(self, arguments: object) -> None:
        if isinstance(arguments, str):
            self._pieces.append(arguments)
            if arguments:
                self.untold.append(arguments)
        elif isinstance(arguments, dict):
            self._whole = arguments  # told as a whole, at the end
        elif arguments is not None:
            self._pieces.append(json.dumps(arguments))

    def is_whole(self) -> bool:
        if self._whole is not None:
            return True
        raw = "".join(self._pieces)
        return bool(raw.strip()) and MALFORMED not in parse_arguments(raw)

    def build(self) -> ToolCall:
        arguments = self._whole
        if arguments is None:
            arguments = parse_arguments("".join(self._pieces))
        return ToolCall(self.known_as(), self.name, arguments)

    def delta(self) -> CallDelta:
        """What was not told yet."""
        written = "".join(self.untold)
        self.untold.clear()
        self.is_told = True
        return CallDelta(self._place, self.known_as(), self.name, written)

    def known_as(self) -> str:
        """Its id outside: one that came without keeps the one that it was given."""
        self.told_id = self.told_id or self.id or new_call_id()
        return self.told_id
