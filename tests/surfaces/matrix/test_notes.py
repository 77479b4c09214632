"""What somebody should see to is told of, and is no fault: it serves all the same."""

from __future__ import annotations

from parley.cli._gateway_words import describe
from tests.gateway.house import House
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import an_agent
from tests.waiting import until


async def test_an_id_that_is_none_is_told_of_while_it_serves(
    synapse: Synapse, house: House
) -> None:
    async with an_agent(synapse, house, allow=["@nobody"]) as agent:
        surface = agent.surface
        assert surface is not None
        await until(lambda: surface.note)
        assert house.gateway is not None
        status = await house.gateway.status()
        [place] = [each for each in status.profiles[0].surfaces if each.platform == "matrix"]
        assert place.fault is None
        assert place.note == "`surfaces.matrix.allow` has what is no Matrix id: `@nobody`."
        assert status.ready
        words = describe(status.to_dict())
        assert f"{agent.user_id}  NOTE: `surfaces.matrix.allow` has" in words
