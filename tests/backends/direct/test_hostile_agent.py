"""A remote agent that says more than anyone can take."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from parley.protocol import Attachment, Final
from tests.backends.direct.builders import Postbox, direct, run
from tests.backends.proxy.builders import ending
from tests.servers.direct_agent import Capable, DirectAgent, Peer
from tests.waiting import until

_MANY = 150


class _Slow(Postbox):
    """Takes nothing before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()

    async def post(
        self,
        lane: str,
        id: str,
        text: str,
        *,
        session: str | None,
        attachments: tuple[Attachment, ...] = (),
    ) -> bool:
        await self.may.wait()
        return await super().post(lane, id, text, session=session, attachments=attachments)


async def test_callbacks_without_end_are_read_no_faster_than_they_are_kept(
    tmp_path: Path,
) -> None:
    script, sent, postbox = Capable(), list[int](), _Slow()

    async def reply(peer: Peer, frame: dict[str, Any]) -> None:
        await peer.answer("later", pending=1)
        for number in range(_MANY):
            await peer.say("CALLBACK", id=f"c{number}", text="x" * 1_000_000, pending=1)
            sent.append(number)

    script.reply = reply
    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, postbox=postbox) as backend,
    ):
        assert isinstance(ending(await run(backend)), Final)
        before = -1
        while before != len(sent):
            before = len(sent)
            await asyncio.sleep(0.5)
        assert len(sent) < _MANY // 2
        postbox.may.set()
        await until(lambda: len(postbox.posts) == _MANY)


async def test_a_callback_is_no_longer_than_an_answer_can_be(tmp_path: Path) -> None:
    script, postbox = Capable(), Postbox()

    async def reply(peer: Peer, frame: dict[str, Any]) -> None:
        await peer.answer("later", pending=1)
        await peer.say("CALLBACK", id="c1", text="x" * 5_000_000, pending=0)

    script.reply = reply
    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, postbox=postbox) as backend,
    ):
        await run(backend)
        await until(lambda: agent.peers[0].is_over)
        assert not postbox.posts
