"""One gateway, many profiles: whose a message is, and that one's fault stays its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from parley.gateway import app
from parley.gateway.app import Parts
from parley.gateway.home import HomeLock, holder_of
from parley.gateway.intake import FrontDoor
from parley.gateway.live import TurnStarted
from parley.gateway.routing import NobodyThere
from parley.profiles import Profile
from parley.protocol import InboundMessage, ParleyError, SessionSource
from parley.storage.contract import Delivery, StoreError, StoreUnavailable
from parley.storage.sqlite import SqliteStore
from parley.surfaces.api.surface import ApiSurface
from parley.surfaces.base import NotSent, Unreachable
from tests.gateway.desk import Desk, at
from tests.gateway.family import Family
from tests.gateway.full_disk import by_the_kernel
from tests.servers.api_server import an_api, bearer
from tests.servers.scripted_model import ScriptedModel
from tests.storage.conformance.base import a_work
from tests.waiting import until

CODER = {"profile": "coder"}


@pytest.fixture
async def family(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Family]:
    made = Family(tmp_path / "home", model, "coder", "writer")
    yield made
    await made.close()


@pytest.fixture
def mending(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be served is tried again at once."""
    monkeypatch.setattr(app, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(app, "_LONGEST_PAUSE", 0.05)


async def readyz(api: ApiSurface, family: Family) -> tuple[int, dict[str, Any]]:
    headers = bearer(family.profiles["default"])
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{api.where}/readyz") as response,
    ):
        return response.status, await response.json()


async def served(family: Family, name: str) -> None:
    """Wait until nothing keeps the profile from being served."""
    async with asyncio.timeout(60):
        while not (await family.status(name)).sound:
            await asyncio.sleep(0.01)


async def answered(desk: Desk, *events: str) -> None:
    await until(lambda: all(desk.answer_to(event) for event in events))


def shared_alone(family: Family) -> Desk:
    """Nobody but `default` has a desk."""
    desk = Desk()
    family.brings = {"default": lambda: [desk], "coder": list, "writer": list}
    return desk


# ── three sessions ──


async def test_the_same_chat_in_three_profiles_is_three_sessions(family: Family) -> None:
    await family.open()
    for name in family.profiles:
        assert await family.desk(name).ask(f"I am for {name}") == f"echo: I am for {name}"
    for name, namespace in (("default", "main"), ("coder", "coder"), ("writer", "writer")):
        assert await family.desk(name).ask("again") == "echo: again"
        assert family.words() == [f"I am for {name}", f"echo: I am for {name}", "again"]
        assert await family.lanes(name) == [f"agent:{namespace}:desk:dm:one"]
        assert family.desk(name).texts() == [f"echo: I am for {name}", "echo: again"]
    found = {
        name: [session.id for session in await family.sessions(name)] for name in family.stores
    }
    assert len({session for sessions in found.values() for session in sessions}) == 3


async def test_the_same_event_in_three_profiles_is_three_events(family: Family) -> None:
    await family.open()
    for name in family.profiles:
        receipt = await family.desk(name).say("hello", event_id="e1")
        assert receipt.state == "queued"
        assert (await family.desk(name).say("hello", event_id="e1")).state == "duplicate"
    await until(lambda: all(family.desk(name).sent for name in family.profiles))
    assert family.model.total == 3


async def test_a_turn_is_shown_once_and_only_where_it_was_asked_for(family: Family) -> None:
    await family.open()
    for name in family.profiles:
        await family.desk(name).ask("hello")
    for name in family.profiles:
        assert family.desk(name).shown(TurnStarted) == [TurnStarted()]
        assert family.desk(name).streamed() == "echo: hello"


# ── routes ──


async def test_a_route_picks_the_profile_and_the_reply_leaves_by_the_shared_account(
    family: Family,
) -> None:
    desk = shared_alone(family)
    await family.open(routes=[{**CODER, "chat": "work"}, {"profile": "writer", "chat": "novel"}])
    assert await desk.ask("hello", chat="work") == "echo: hello"
    assert await desk.ask("hello", chat="novel") == "echo: hello"
    assert await desk.ask("hello", chat="home") == "echo: hello"
    assert await family.lanes("coder") == ["agent:coder:desk:dm:work"]
    assert await family.lanes("writer") == ["agent:writer:desk:dm:novel"]
    assert await family.lanes("default") == ["agent:main:desk:dm:home"]
    assert [delivery.source.profile for delivery in desk.sent] == ["coder", "writer", "default"]
    assert desk.streamed("work") == "echo: hello"


async def test_a_reply_leaves_by_the_account_it_came_in_by(family: Family) -> None:
    """A profile with a desk of its own is asked at two of the house as well."""
    first, second = Desk("front"), Desk("back")
    family.brings["default"] = lambda: [first, second]
    await family.open(routes=[{**CODER, "chat": "one"}])
    for desk in (first, second, family.desk("coder")):
        assert await desk.ask("hello") == "echo: hello"
        assert len(desk.sent) == 1
    assert await family.lanes("default") == []
    accounts = {d.source.account for desk in (first, second) for d in desk.sent}
    assert len(accounts - {None}) == 2


@pytest.mark.parametrize("ours", ["front", "default", None])
@pytest.mark.parametrize("shared", ["front", None])
async def test_an_account_of_its_own_is_never_taken_for_a_shared_one(
    family: Family, ours: str | None, shared: str | None
) -> None:
    family.brings = {"default": lambda: [Desk(shared)], "coder": lambda: [Desk(ours)]}
    await family.open(routes=[{**CODER, "chat": "one"}])
    for name in ("default", "coder"):
        desk = family.desk(name)
        assert (await desk.say(f"by {name}", event_id="e1")).state == "queued"
        await answered(desk, "e1")
        assert desk.texts() == [f"echo: by {name}"]
        assert desk.streamed() == f"echo: by {name}"
    assert await family.lanes("coder") == ["agent:coder:desk:dm:one"]


async def test_a_route_may_name_the_account(family: Family) -> None:
    first, second = Desk("front"), Desk("back")
    family.brings["default"] = lambda: [first, second]
    await family.open(routes=[{**CODER, "account": "back"}])
    await first.ask("hello")
    await second.ask("hello")
    assert [d.source.profile for d in (*first.sent, *second.sent)] == ["default", "coder"]


async def test_a_parked_reply_goes_when_its_chat_is_back_whoever_answers_there_now(
    family: Family,
) -> None:
    def away(delivery: Delivery) -> None:
        raise Unreachable("nobody is there")

    await family.open(routes=[{**CODER, "chat": "one"}])
    family.desk().before_send = away
    await family.desk().say("hello", event_id="e1")
    await until(lambda: family.model.total == 1 and family.model.open_streams == 0)
    await family.close()
    await family.open()
    desk = family.desk()
    assert desk.door is not None
    await desk.door.back(at("one"))
    await until(lambda: desk.answer_to("e1"))
    assert desk.sent[0].source.profile == "coder"


async def test_accounts_of_its_own_ignore_routes(family: Family) -> None:
    await family.open(routes=[{**CODER, "platform": "desk"}])
    await family.desk("writer").ask("hello")
    assert await family.lanes("writer") == ["agent:writer:desk:dm:one"]
    assert await family.lanes("coder") == []
    await family.desk("default").ask("hello")
    assert await family.lanes("coder") == ["agent:coder:desk:dm:one"]


@pytest.mark.parametrize("only", [(), ("default", "writer")])
async def test_a_route_to_a_profile_that_is_not_served_is_an_error_at_the_start(
    family: Family, only: tuple[str, ...]
) -> None:
    name = "coder" if only else "stranger"
    with pytest.raises(ParleyError, match=f"goes to the profile `{name}`, which is not served"):
        await family.open(only=only, routes=[{"profile": name, "chat": "x"}])
    assert family.stores == {}


async def test_without_default_what_no_route_speaks_of_is_refused(family: Family) -> None:
    desk = Desk()
    await family.open(only=["coder", "writer"], routes=[{**CODER, "chat": "work"}], surfaces=[desk])
    assert await desk.ask("hello", chat="work") == "echo: hello"
    with pytest.raises(NobodyThere, match="No profile answers here: `default` is not served"):
        await desk.say("hello", chat="home")
    assert await family.lanes("coder") == ["agent:coder:desk:dm:work"]
    assert not family.profiles["default"].database_file.exists()


async def test_a_route_to_a_profile_that_cannot_answer_now_is_refused_with_a_sentence(
    family: Family,
) -> None:
    desk = shared_alone(family)
    family.troubles["coder"] = ParleyError("It is ill.")
    await family.open(routes=[{**CODER, "chat": "work"}])
    with pytest.raises(NobodyThere, match="`coder` cannot answer now"):
        await desk.say("hello", chat="work")
    assert await family.lanes("default") == []
    assert desk.door is not None
    assert desk.door.introduce(at("work")).profile == "coder"


async def test_a_surface_cannot_speak_for_another_profile_or_account(family: Family) -> None:
    await family.open()
    claimed = replace(at("one"), profile="coder", account="bank", platform="telegram")
    for name, namespace in (("default", "main"), ("writer", "writer")):
        desk = family.desk(name)
        await desk.admit(InboundMessage(claimed, "hello", "e1"))
        await answered(desk, "e1")
        source = desk.sent[0].source
        assert (source.profile, source.account, source.platform) == (name, None, "desk")
        assert await family.lanes(name) == [f"agent:{namespace}:desk:dm:one"]
    assert await family.lanes("coder") == []


# ── the flag: off, on, and off again ──


@pytest.mark.parametrize("name", ["default", "coder"])
async def test_every_session_is_found_again_when_the_flag_changes(
    family: Family, name: str
) -> None:
    desk = await family.open_alone(name)
    await desk.ask("first")
    await desk.ask("elsewhere", chat="two")
    before = await family.sessions(name)
    keys = ["agent:main:desk:dm:one", "agent:main:desk:dm:two"]
    assert await family.lanes(name) == keys
    await family.close()

    await family.open()
    desk = family.desk(name)
    assert await desk.ask("second") == "echo: second"
    assert family.words() == ["first", "echo: first", "second"]
    during = await family.sessions(name)
    namespace = "main" if name == "default" else name
    assert await family.lanes(name) == [key.replace("main", namespace) for key in keys]
    assert {session.id for session in during} == {session.id for session in before}
    await family.close()

    desk = await family.open_alone(name)
    await desk.ask("third")
    assert family.words() == ["first", "echo: first", "second", "echo: second", "third"]
    await desk.ask("there", chat="two")
    assert family.words() == ["elsewhere", "echo: elsewhere", "there"]
    assert await family.lanes(name) == keys
    assert {session.id for session in await family.sessions(name)} == {s.id for s in before}


@pytest.mark.parametrize("name", ["default", "coder"])
async def test_replies_nobody_could_take_survive_the_flips(family: Family, name: str) -> None:
    def away(delivery: Delivery) -> None:
        raise Unreachable("nobody is there")

    def not_now(delivery: Delivery) -> None:
        raise NotSent("not now", after=0.2)

    desk = await family.open_alone(name)
    desk.before_send = away
    await desk.say("parked", chat="one")
    await until(lambda: family.model.total == 1 and family.model.open_streams == 0)
    await family.close()

    family.brings[name] = lambda: [Desk()]
    await family.open()
    desk = family.desk(name)
    desk.before_send = not_now
    await desk.say("late", chat="two")
    await until(lambda: family.model.total == 2 and family.model.open_streams == 0)
    assert not desk.sent
    await family.close()

    desk = await family.open_alone(name)
    await until(lambda: desk.texts("two"))
    assert desk.texts("one") == []
    await family.close()

    await family.open()
    desk = family.desk(name)
    assert desk.door is not None
    await desk.door.back(at("one"))
    await until(lambda: desk.texts("one"))
    assert (desk.texts("one"), desk.texts("two")) == (["echo: parked"], [])


async def test_a_reply_to_a_shared_account_waits_while_the_profile_is_served_alone(
    family: Family,
) -> None:
    shared = Desk()
    family.brings["default"] = lambda: [shared]
    shared.before_send = _refusing
    await family.open(routes=[{**CODER, "chat": "work"}])
    await shared.say("hello", chat="work")
    await until(lambda: family.model.total == 1 and family.model.open_streams == 0)
    await family.close()

    own = await family.open_alone("coder")
    assert await own.ask("mine", chat="other") == "echo: mine"
    assert own.texts("work") == []
    await family.close()

    shared.before_send = None
    await family.open(routes=[{**CODER, "chat": "work"}])
    await until(lambda: shared.texts("work"))
    assert shared.texts("work") == ["echo: hello"]


def _refusing(delivery: Delivery) -> None:
    raise NotSent("not now", after=0.01)


# ── the same token ──


class Bot(Desk):
    platform = "bot"

    def __init__(self, token: str) -> None:
        super().__init__()
        self.token = token

    @property
    def credential(self) -> str | None:
        return self.token


async def test_two_profiles_with_one_token_are_refused_by_name_until_one_is_changed(
    family: Family, mending: None
) -> None:
    bots = {"coder": Bot("same-token"), "writer": Bot(" same-token\n"), "default": Bot("other")}
    family.brings = {name: partial(list, [bot]) for name, bot in bots.items()}
    await family.open()
    for name in ("coder", "writer"):
        [place] = (await family.status(name)).surfaces
        assert place.fault == (
            "The profiles `coder` and `writer` have the same token for bot; give each its own."
        )
        assert bots[name].door is None
    assert (await family.status("default")).sound
    assert await bots["default"].ask("hello") == "echo: hello"
    assert family.gateway is not None
    status = await family.gateway.status()
    assert (status.ready, status.degraded) == (True, True)
    assert "same-token" not in str(status)
    bots["writer"].token = "another"
    for name in ("coder", "writer"):
        await served(family, name)
        assert await bots[name].ask("hello") == "echo: hello"


async def test_one_that_serves_goes_on_when_another_comes_with_its_token(
    family: Family, mending: None
) -> None:
    ours, theirs = Bot("same"), Bot("same")
    family.brings = {"coder": lambda: [ours], "writer": lambda: [theirs]}
    family.troubles["writer"] = ParleyError("Later.")
    await family.open()
    assert await ours.ask("hello") == "echo: hello"
    del family.troubles["writer"]
    await until(lambda: "writer" in family.stores)
    await until(lambda: theirs.door is None)
    async with asyncio.timeout(60):
        while not (await family.status("writer")).problems:
            await asyncio.sleep(0.01)
    assert (await family.status("coder")).sound
    assert await ours.ask("again") == "echo: again"
    assert theirs.door is None


async def test_the_same_token_twice_in_one_profile_or_on_two_platforms_is_fine(
    family: Family,
) -> None:
    class Other(Bot):
        platform = "other"

    family.brings = {
        "coder": lambda: [Bot("same"), Other("same")],
        "writer": lambda: [Other("third")],
    }
    await family.open()
    for name in family.profiles:
        assert (await family.status(name)).sound


# ── one profile's fault ──


def break_config(family: Family) -> None:
    family.profiles["coder"].config_file.write_text("model: 5\n")


def hold_home(family: Family) -> HomeLock:
    lock = HomeLock(family.profiles["coder"], "chat")
    lock.__enter__()
    return lock


async def test_a_broken_config_is_told_while_the_others_serve_until_it_is_mended(
    family: Family, mending: None
) -> None:
    api = an_api(*family.profiles.values())
    break_config(family)
    await family.open(surfaces=[api])
    told = await family.status("coder")
    assert told.fault is not None
    assert "`model` wants settings under it, not `5`" in told.fault
    code, detail = await readyz(api, family)
    assert (code, detail["ready"], detail["degraded"]) == (200, True, True)
    assert detail["profiles"]["coder"]["ready"] is False
    assert detail["profiles"]["coder"]["problems"] == [told.fault]
    assert detail["profiles"]["writer"] == {
        "ready": True,
        "problems": [],
        "starting": [],
        "surfaces": {"desk": "ok"},
    }
    for name in ("default", "writer"):
        assert await family.desk(name).ask("hello") == "echo: hello"
    family.configure("coder")
    await served(family, "coder")
    assert await family.desk("coder").ask("hello") == "echo: hello"
    assert (await readyz(api, family))[1]["degraded"] is False


async def test_a_home_in_use_is_taken_over_when_it_is_free(family: Family, mending: None) -> None:
    lock = hold_home(family)
    await family.open()
    fault = (await family.status("coder")).fault
    assert fault is not None
    assert "is already served by `parley chat`" in fault
    assert await family.desk("writer").ask("hello") == "echo: hello"
    lock.__exit__(None, None, None)
    await served(family, "coder")
    assert await family.desk("coder").ask("hello") == "echo: hello"


async def test_a_database_that_cannot_be_opened_is_its_profiles_fault(
    family: Family, mending: None
) -> None:
    file = family.profiles["coder"].database_file
    file.write_text("this is no database, and long enough to be seen as none" * 20)
    await family.open()
    fault = (await family.status("coder")).fault
    assert fault is not None
    assert str(file) in fault
    assert await family.desk("default").ask("hello") == "echo: hello"
    file.unlink()
    await served(family, "coder")
    assert await family.desk("coder").ask("hello") == "echo: hello"


async def test_a_fault_nobody_thought_of_is_told_without_its_words(
    family: Family, mending: None
) -> None:
    family.troubles["coder"] = RuntimeError("the key is hunter2")
    await family.open()
    fault = (await family.status("coder")).fault
    assert fault == "Something went wrong inside Parley (RuntimeError)."
    assert await family.desk("default").ask("hello") == "echo: hello"
    del family.troubles["coder"]
    await served(family, "coder")
    assert await family.desk("coder").ask("hello") == "echo: hello"


@pytest.mark.parametrize(
    "fault", [ParleyError("Locked."), OSError(13, "No"), TimeoutError(), ValueError("odd")]
)
async def test_a_surface_that_does_not_open_is_its_profiles_fault(
    family: Family, mending: None, fault: Exception
) -> None:
    class Locked(Desk):
        locked = True

        async def start(self, door: FrontDoor) -> None:
            if self.locked:
                raise fault
            await super().start(door)

    desk = Locked()
    family.brings["coder"] = lambda: [desk]
    await family.open()
    [place] = (await family.status("coder")).surfaces
    assert place.fault
    for name in ("default", "writer"):
        assert await family.desk(name).ask("hello") == "echo: hello"
    desk.locked = False
    await served(family, "coder")
    assert await desk.ask("hello") == "echo: hello"


async def test_a_profile_that_fails_half_way_leaves_nothing_running(
    family: Family, mending: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its database opens, and then what is to be taken up cannot be read."""
    real = SqliteStore.pending_commands
    ill = family.profiles["coder"].database_file
    begun = 0

    async def pending(store: SqliteStore) -> Any:
        nonlocal begun
        if store is family.stores.get("coder") and ill.with_name("ill").exists():
            begun += 1
            raise StoreUnavailable("The disk is full.")
        return await real(store)

    monkeypatch.setattr(SqliteStore, "pending_commands", pending)
    ill.with_name("ill").touch()
    await family.open()
    assert (await family.status("coder")).fault == "The disk is full."
    quiet = len(asyncio.all_tasks())
    await until(lambda: begun >= 4)
    assert len(asyncio.all_tasks()) <= quiet + 1
    ill.with_name("ill").unlink()
    await served(family, "coder")
    assert await family.desk("coder").ask("hello") == "echo: hello"


async def test_default_that_comes_late_shares_its_accounts_then(
    family: Family, mending: None
) -> None:
    desk = shared_alone(family)
    family.brings["writer"] = lambda: [Desk()]
    family.troubles["default"] = ParleyError("It is ill.")
    await family.open(routes=[{**CODER, "chat": "work"}])
    assert desk.door is None
    del family.troubles["default"]
    await until(lambda: desk.door)
    assert await desk.ask("hello", chat="work") == "echo: hello"
    assert await family.lanes("coder") == ["agent:coder:desk:dm:work"]
    assert desk.streamed("work") == "echo: hello"


async def test_a_full_disk_in_one_profile_is_told_and_clears_again(family: Family) -> None:
    api = an_api(*family.profiles.values())
    await family.open(surfaces=[api])
    # No file of the others comes near the length of this one's: it alone meets the limit.
    await family.desk("coder").ask("x" * 200_000)
    while (await family.status("coder")).undelivered:
        await asyncio.sleep(0.005)
    store, file = family.stores["coder"], family.profiles["coder"].database_file
    async with by_the_kernel(store, file):
        with pytest.raises(StoreError):
            await family.desk("coder").say("hello")
        told = await family.status("coder")
        assert told.fault is None
        assert told.faults
        code, detail = await readyz(api, family)
        assert (code, detail["degraded"]) == (200, True)
        assert detail["profiles"]["coder"]["problems"] == list(told.faults)
        for name in ("default", "writer"):
            assert (await family.status(name)).sound
            assert await family.desk(name).ask("hello") == "echo: hello"
    assert await family.desk("coder").ask("after") == "echo: after"
    await served(family, "coder")
    assert (await readyz(api, family))[1]["degraded"] is False


async def test_when_nobody_can_be_served_it_is_an_error_and_nothing_is_left_open(
    family: Family,
) -> None:
    for name in family.profiles:
        family.troubles[name] = ParleyError(f"{name} is ill; call a doctor.")
    with pytest.raises(ParleyError, match="default is ill; call a doctor"):
        await family.open()
    family.troubles.clear()
    await family.open()
    assert await family.desk("coder").ask("hello") == "echo: hello"


# ── the end ──


async def test_a_stop_closes_everyone_also_when_one_does_not_end_well(family: Family) -> None:
    class Sticky(Desk):
        async def stop(self) -> None:
            raise RuntimeError("it sticks")

    family.brings["default"] = lambda: [Sticky()]
    family.ends_badly = {"default": RuntimeError("no"), "coder": ParleyError("no")}
    await family.open()
    desks = [family.desk(name) for name in ("coder", "writer")]
    await family.close()
    assert [desk.door for desk in desks] == [None, None]
    assert [holder_of(profile) for profile in family.profiles.values()] == [None] * 3
    family.ends_badly.clear()
    await family.open()
    for name in ("coder", "writer"):
        assert await family.desk(name).ask("hello") == "echo: hello"


async def test_turns_in_several_profiles_are_set_aside_and_finished_next_time(
    family: Family, model: ScriptedModel
) -> None:
    await family.open()
    for name in family.profiles:
        await family.desk(name).say("[[delay 0.8]] slow", event_id=f"e-{name}")
    await model.until(lambda m: m.open_streams == 3)
    await family.close()
    await family.open()
    await until(lambda: all(family.desk(name).sent for name in family.profiles))
    for name in family.profiles:
        [reply] = family.desk(name).sent
        assert reply.answers == (f"e-{name}",)
        assert reply.text == "echo: [[delay 0.8]] slow"


# ── the session policy ──


async def rest(family: Family, name: str, *, minutes: int) -> None:
    """As if the sessions had last been used so long ago."""
    seconds = minutes * 60
    await family.stores[name]._engine.write(
        lambda db: db.execute("UPDATE session SET updated_at = updated_at - ?", (seconds,))
    )


def half_a_day_from_now() -> str:
    from datetime import UTC, datetime, timedelta

    return (datetime.now(UTC) + timedelta(hours=12)).strftime("%H:%M")


async def test_a_pause_begins_a_new_conversation_where_the_surface_says_so(
    family: Family,
) -> None:
    policy = {"surfaces": {"desk": {"reset": "idle", "idle_minutes": 30}}}
    family.configure("coder", sessions=policy)
    await family.open()
    for name in ("coder", "writer"):
        desk = family.desk(name)
        await desk.ask("old words")
        await rest(family, name, minutes=20)
        await desk.ask("soon after")
        assert family.words()[0] == "old words"
        await rest(family, name, minutes=31)
        await desk.ask("much later")
    coder, writer = family.desk("coder"), family.desk("writer")
    assert writer.texts() == ["echo: old words", "echo: soon after", "echo: much later"]
    assert len(await family.sessions("writer")) == 1
    *before, notice, answer = coder.texts()
    assert before == ["echo: old words", "echo: soon after"]
    assert notice.startswith("A new conversation: ")
    assert coder.sent[-2].kind == "notice"
    assert answer == "echo: much later"
    requests = [family.words(number) for number in range(len(family.model.requests))]
    assert ["much later"] in requests
    assert len(await family.sessions("coder")) == 2
    await coder.ask("/resume 2")
    await coder.ask("back")
    assert family.words()[0] == "old words"


async def test_a_day_begins_a_new_conversation_and_may_do_so_quietly(family: Family) -> None:
    daily = {"reset": "daily", "daily_at": half_a_day_from_now(), "timezone": "UTC"}
    family.configure("coder", sessions={**daily, "reset_notice": False})
    family.configure("writer", sessions={**daily, "surfaces": {"desk": {"reset": "never"}}})
    await family.open()
    for name, anew in (("coder", ["new day"]), ("writer", ["old", "echo: old", "new day"])):
        await family.desk(name).ask("old")
        await rest(family, name, minutes=11 * 60)
        await family.desk(name).ask("same day", chat="two")
        await rest(family, name, minutes=2 * 60)
        await family.desk(name).ask("new day")
        assert family.words() == anew
        assert family.desk(name).texts() == ["echo: old", "echo: new day"]


async def test_a_trigger_is_a_command_that_begins_a_new_conversation(family: Family) -> None:
    family.configure("coder", sessions={"reset_triggers": ["/reset", "Fresh start"]})
    await family.open()
    desk = family.desk("coder")
    new = await desk.ask("/new")
    for number, trigger in enumerate(("/reset", "  fresh START ")):
        await desk.ask("words")
        asked = family.model.total
        assert await desk.ask(trigger) == new
        assert family.model.total == asked
        await desk.ask("next")
        assert family.words() == ["next"]
        assert len(await family.sessions("coder")) == number + 3
    await family.desk("writer").ask("words")
    await family.desk("writer").ask("fresh start")
    assert family.words() == ["words", "echo: words", "fresh start"]


async def test_a_session_with_running_work_is_not_over(family: Family) -> None:
    family.configure("coder", sessions={"reset": "both", "idle_minutes": 1})
    await family.open()
    desk, store = family.desk("coder"), family.stores["coder"]
    await desk.ask("long task")
    [session] = await family.sessions("coder")
    assert await store.begin_work(a_work("w1", session))
    await rest(family, "coder", minutes=3000)
    await desk.ask("how far?")
    assert family.words()[0] == "long task"
    assert desk.texts() == ["echo: long task", "echo: how far?"]
    await store.end_work("w1", "done")
    await rest(family, "coder", minutes=3000)
    await desk.ask("thanks")
    assert family.words() == ["thanks"]


async def test_what_comes_by_itself_belongs_to_the_conversation_that_began_it(
    family: Family,
) -> None:
    family.configure("coder", sessions={"reset": "idle", "idle_minutes": 1})
    await family.open()
    desk = family.desk("coder")
    await desk.ask("remind me")
    await rest(family, "coder", minutes=10)
    await desk.admit(InboundMessage(at("one"), "it is time", "e9", internal=True))
    await until(lambda: desk.answer_to("e9"))
    assert family.words()[0] == "remind me"


async def test_groups_and_threads_are_divided_as_each_profile_has_it(family: Family) -> None:
    family.configure("coder", sessions={"group_sessions_per_user": False})
    family.configure("writer", sessions={"surfaces": {"desk": {"thread_sessions_per_user": True}}})
    await family.open()
    group = SessionSource("desk", "g1", "group", user_id="ann")
    thread = replace(group, thread_id="t1")
    said = [group, thread, *(replace(place, user_id="bob") for place in (group, thread))]
    for name in family.profiles:
        for number, source in enumerate(said):
            await family.desk(name).admit(InboundMessage(source, "hello", f"e{number}"))
        await answered(family.desk(name), *(f"e{number}" for number in range(len(said))))
    assert await family.lanes("default") == [
        "agent:main:desk:group:g1:ann",
        "agent:main:desk:group:g1:bob",
        "agent:main:desk:group:g1:t1:",
    ]
    assert await family.lanes("coder") == [
        "agent:coder:desk:group:g1",
        "agent:coder:desk:group:g1:t1:",
    ]
    assert await family.lanes("writer") == [
        "agent:writer:desk:group:g1:ann",
        "agent:writer:desk:group:g1:bob",
        "agent:writer:desk:group:g1:t1:ann",
        "agent:writer:desk:group:g1:t1:bob",
    ]


async def test_a_reply_cut_off_on_a_shared_account_waits_until_that_account_is_back(
    family: Family, mending: None
) -> None:
    desk = shared_alone(family)
    await family.open(routes=[{"profile": "coder", "chat": "code"}])
    await desk.say("hello", chat="code", event_id="m1")
    await until(lambda: desk.answer_to("m1"))
    await family.close()
    with closing(sqlite3.connect(family.profiles["coder"].database_file)) as db, db:
        db.execute("UPDATE outbox SET state = 'sending', owner = 'killed'")
    desk.sent.clear()
    family.troubles["default"] = ParleyError("its settings are broken")
    await family.open(routes=[{"profile": "coder", "chat": "code"}])
    del family.troubles["default"]
    await until(lambda: desk.answer_to("m1"))
    assert not (await family.status("coder")).doubtful


async def test_one_that_is_slow_to_open_keeps_nobody_waiting(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, mending: None
) -> None:
    opened = asyncio.Event()

    class Slow(Family):
        @asynccontextmanager
        async def _opened(self, profile: Profile) -> AsyncIterator[Parts]:
            if profile.name == "coder":
                await opened.wait()
            async with super()._opened(profile) as parts:
                yield parts

    monkeypatch.setattr(app, "_PATIENCE", 0.05)
    family = Slow(tmp_path / "home", model, "coder")
    await family.open()
    assert await family.desk().ask("hello") == "echo: hello"
    assert "It takes long to open" in (await family.status("coder")).problems[0]
    opened.set()
    await until(lambda: family.desks.get("coder") and family.desk("coder").door)
    assert await family.desk("coder").ask("hello") == "echo: hello"
    assert not (await family.status("coder")).problems
    await family.close()


async def test_a_gateway_stops_while_one_is_still_opening(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck(Family):
        @asynccontextmanager
        async def _opened(self, profile: Profile) -> AsyncIterator[Parts]:
            if profile.name == "coder":
                await asyncio.Event().wait()
            async with super()._opened(profile) as parts:
                yield parts

    monkeypatch.setattr(app, "_PATIENCE", 0.05)
    family = Stuck(tmp_path / "home", model, "coder")
    await family.open()
    async with asyncio.timeout(60):
        await family.close()
