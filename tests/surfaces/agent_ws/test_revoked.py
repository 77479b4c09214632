"""A key that is revoked while connections of it are open."""

from __future__ import annotations

from parley.config.api_keys import KeyFile
from tests.surfaces.agent_ws.line import ALL, DirectHouse
from tests.surfaces.api.served import a_key


async def test_nothing_is_done_for_a_key_that_was_revoked(direct: DirectHouse) -> None:
    key = a_key(direct.house.profile, "desk")
    async with direct.line(key=key, knows=ALL) as line:
        await line.ask("hello")
        KeyFile(direct.house.profile).revoke("desk")
        await line.send("USER_MESSAGE", text="do something", id="m1")
        assert await line.closed() == 4401
    assert len(direct.house.model.requests) == 1
    assert "do something" not in str(await direct.lanes())
