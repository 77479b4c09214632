"""One profile, one chat id, two accounts: its own and the shared one that a route lends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.agent.tools import TOOLS
from parley.gateway.home import socket_path
from tests.isolation.family import Family
from tests.isolation.seats import seats_of
from tests.isolation.spy import TOOL_NAME, Spy
from tests.servers.scripted_model import ScriptedModel
from tests.surfaces.terminal import Line
from tests.waiting import until

__all__: list[str] = []


async def test_who_speaks_by_a_shared_account_is_answered_there(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = Family.of(tmp_path / "home", profiles=2, each=10)
    monkeypatch.setitem(TOOLS, TOOL_NAME, Spy(family.profiles, family.shell()).tool)
    family.make(model_url=model.base_url, answers_url="http://127.0.0.1:9")
    [lent] = [seat for seat in seats_of(family.names, 10) if seat.kind == "lent"]
    async with (
        family.serve(),
        Line(socket_path(family.profile(lent.profile))) as own,
        Line(socket_path(family.profile(lent.account))) as shared,
    ):
        await own.hello(lent.chat)
        await shared.hello(lent.chat)
        await own.say('Read. [[tool read_file {"path": "notes.txt"}]] [[delay 0.5]]', "one")
        await model.until(lambda server: server.open_streams == 1)
        await shared.say("And here?", "two")
        await until(lambda: own.answer_to("one"))
        await until(lambda: shared.answer_to("two"))
