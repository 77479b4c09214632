"""A gateway's surfaces: one that cannot start leaves the others serving, and says why."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from parley.config.api_keys import KeyFile
from parley.config.settings import GatewayConfig
from parley.gateway.intake import FrontDoor
from parley.profiles import Profile
from parley.protocol import ParleyError
from tests.gateway.desk import Desk
from tests.gateway.house import House
from tests.servers.api_server import an_api, bearer
from tests.waiting import until


class Closed(Desk):
    """A surface whose door does not open."""

    platform = "closed"

    def __init__(self, fault: Exception) -> None:
        super().__init__()
        self._fault = fault

    async def start(self, door: FrontDoor) -> None:
        raise self._fault


class ClosedDesk(Desk):
    async def start(self, door: FrontDoor) -> None:
        raise ParleyError("The desk is locked; unlock it.")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def get(url: str, home: Profile | None = None) -> tuple[int, dict[str, Any]]:
    headers = bearer(home) if home is not None else {}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    "fault", [ParleyError("The key is missing; run setup."), OSError(13, "Permission denied")]
)
async def test_a_surface_that_cannot_start_leaves_the_others_serving(
    house: House, fault: Exception
) -> None:
    api = an_api(house.profile)
    house.more_surfaces = [Closed(fault), api]
    desk = await house.open()
    assert await desk.ask("hello") == "echo: hello"
    assert house.gateway is not None
    status = await house.gateway.status()
    assert not status.ready
    assert [(s.platform, s.fault) for s in status.profiles[0].surfaces] == [
        ("desk", None),
        ("closed", str(fault)),
        ("api", None),
    ]
    code, told = await get(f"{api.where}/readyz", house.profile)
    assert code == 503
    assert told["ready"] is False
    places = {"desk": "ok", "closed": str(fault), "api": "ok"}
    assert told["profiles"]["default"]["surfaces"] == places
    assert (await get(f"{api.where}/healthz"))[0] == 200


async def test_a_gateway_whose_surfaces_all_serve_is_ready(house: House) -> None:
    api = an_api(house.profile)
    house.more_surfaces = [api]
    await house.open()
    code, told = await get(f"{api.where}/readyz", house.profile)
    assert code == 200
    assert told["ready"] is True
    assert told["state"] == "serving"
    assert "home" not in told


async def test_a_port_in_use_is_one_sentence_that_names_the_command(
    house: House, taken_port: int
) -> None:
    house.more_surfaces = [an_api(house.profile, port=taken_port)]
    desk = await house.open()
    assert house.gateway is not None
    fault = (await house.gateway.status()).profiles[0].surfaces[1].fault
    assert fault is not None
    assert fault.startswith(f"Port {taken_port} is in use by another program;")
    assert "parley config set gateway.port" in fault
    assert await desk.ask("hello") == "echo: hello"


async def test_an_address_that_is_not_ours_is_one_sentence(house: House) -> None:
    KeyFile(house.profile).create("far", ["chat"])
    behind = GatewayConfig(public_url="https://parley.example")
    house.more_surfaces = [an_api(house.profile, host="192.0.2.1", port=8642, network=behind)]
    await house.open()
    assert house.gateway is not None
    fault = (await house.gateway.status()).profiles[0].surfaces[1].fault
    assert fault is not None
    assert fault.startswith("192.0.2.1:8642 cannot be opened (")


async def test_no_surface_at_all_is_an_error_and_nothing_is_left_open(house: House) -> None:
    house.desk_type = ClosedDesk
    with pytest.raises(ParleyError, match="The desk is locked; unlock it"):
        await house.open()
    house.desk_type = Desk
    desk = await house.open()
    assert await desk.ask("hello") == "echo: hello"


async def test_a_surface_that_does_not_close_is_left_behind(house: House) -> None:
    class Sticky(Desk):
        async def stop(self) -> None:
            raise ParleyError("It sticks.")

    house.desk_type = Sticky
    await house.open()
    await house.close()
    house.desk_type = Desk
    assert await (await house.open()).ask("hello") == "echo: hello"


async def test_a_surface_that_breaks_while_showing_harms_only_the_preview(house: House) -> None:
    from parley.gateway.live import LiveEvent

    class Blind(Desk):
        async def show(self, event: LiveEvent) -> None:
            raise ValueError("no eyes")

    house.desk_type = Blind
    desk = await house.open()
    assert await desk.ask("hello") == "echo: hello"
    assert await desk.ask("again") == "echo: again"


async def test_status_counts_what_is_under_way(house: House) -> None:
    desk = await house.open(gateway={"running_turns": 1})
    await desk.say("[[delay 0.3]]", chat="one")
    await until(lambda: house.model.open_streams == 1)
    await desk.say("waiting", chat="two")
    assert house.gateway is not None
    status = await house.gateway.status()
    assert (status.running, status.queued, status.state) == (1, 1, "serving")
    assert status.profiles[0].answered_by == "scripted · scripted"
    await until(lambda: len(desk.sent) == 2)
    status = await house.gateway.status()
    assert (status.running, status.queued) == (0, 0)
