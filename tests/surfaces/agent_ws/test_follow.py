"""Whoever comes late to an answer hears what those heard who were there from the start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from parley.gateway.live import LiveEvent, TurnEnded, TurnStarted
from parley.protocol import (
    ChatMessage,
    Final,
    SessionSource,
    StepTaken,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolStarted,
)
from parley.surfaces.agent_ws.answer import Answer
from parley.surfaces.agent_ws.follow import Turns
from parley.surfaces.api.asks import Happening
from parley.surfaces.api.stream import Mailbox
from tests.surfaces.agent_ws.line import ALL

_CALL = ToolCall("c1", "now")
_STEP: list[Happening] = [
    StepTaken((ChatMessage("assistant", tool_calls=(_CALL,)),)),
    ToolStarted(_CALL),
    ToolFinished(_CALL, ok=True),
    StepTaken((ChatMessage("tool", "noon", tool_call_id="c1"),)),
]
_words = st.text("ab c", min_size=1, max_size=4).map(lambda text: [TextDelta(text)])
_pieces = st.lists(_words | st.sampled_from([[TextReset()], _STEP]), max_size=12)


def _live(event: Happening) -> LiveEvent:
    return LiveEvent(0, "lane", 1, SessionSource("direct"), event, "m1", True)


def _read(box: Mailbox[Happening], knows: Sequence[str], final: str) -> list[list[str]]:
    """What a client shows in the end: its messages, each as the texts that were not withdrawn."""
    shown: list[list[str]] = [[]]

    async def send(frame: Any) -> None:
        match frame["type"]:
            case "AGENT_EVENT_TEXT_CHUNK":
                shown[-1].append(frame["text"])
            case "AGENT_EVENT_RESET":
                shown[-1].clear()
            case "AGENT_EVENT_TOOL" if frame["state"] == "started":
                shown.append([])

    async def read() -> None:
        answer = Answer(send, lambda name: name in knows, "m1")
        box.close()
        async for event in box:
            await answer.take(event)
        await answer.end(Final(final), None)

    asyncio.run(read())
    return shown


@given(_pieces, st.integers(min_value=0, max_value=40))
def test_at_whatever_moment_one_comes(pieces: list[list[Happening]], moment: int) -> None:
    events: list[Happening] = [TurnStarted(), *(event for piece in pieces for event in piece)]
    last = ""
    for event in events:
        match event:
            case TextDelta(text=text):
                last += text
            case TextReset() | ToolStarted():
                last = ""
    final = last.strip()
    turns = Turns()
    with turns.watch("m1") as early:
        for event in events[:moment]:
            turns.take(_live(event))
        with turns.watch("m1") as late:
            for event in events[moment:]:
                turns.take(_live(event))
            both = [_read(box, ALL, final) for box in (early, late)]
        turns.take(_live(TurnEnded(ending=Final(final))))
    assert ["".join(each) for each in both[0]] == ["".join(each) for each in both[1]]
    assert "".join(both[0][-1]).strip() == final
    assert len(turns) == 0
