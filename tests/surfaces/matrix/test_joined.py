"""People on Matrix with an agent that is another process, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

from tests.agent.processes.house import needs_bubblewrap
from tests.servers.gateway_process import GatewayProcess, write_config
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.joined import a_pair, ask, come_in, new_chat
from tests.surfaces.matrix.person import Person
from tests.surfaces.matrix.processes import parley
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)  # a busy machine is slow to start processes

DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


async def test_two_people_with_three_chats_each_have_six_threads_and_no_word_leaks(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with (
        a_pair(synapse, tmp_path) as pair,
        Person.on(synapse, name="alice") as alice,
        Person.on(synapse, name="bob") as bob,
    ):
        chats: dict[str, tuple[Person, str]] = {}
        for person in (alice, bob):
            first = await come_in(person, pair.agent)
            rooms = [first]
            for name in ("Garden", "Boats"):
                rooms.append(await new_chat(person, pair.agent, first, name))
            for number, room in enumerate(rooms):
                chats[f"{person.account.user_id[2:7]}secret{number}"] = (person, room)
        assert len(chats) == 6
        for word, (person, room) in chats.items():
            await ask(person, pair.agent, room, f"The word is {word}.")
        for word, (person, room) in chats.items():
            await ask(person, pair.agent, room, f"Which word did I tell you? ask-{word}")
            seen = await pair.seen_with(f"ask-{word}")
            assert f"The word is {word}." in seen
            others = [other for other in chats if other != word and other in seen]
            assert others == []
        threads = await pair.threads()
        assert len(threads) == 6

        word = next(iter(chats))
        person, room = chats[word]
        await person.send(room, "!rename Kitchen")
        await person.wait_for_text(pair.agent, "Kitchen", room_id=room)
        await ask(person, pair.agent, room, "Do you still know it? renamed")
        assert f"The word is {word}." in await pair.seen_with("renamed")
        assert len(await pair.threads()) == 6

        before = len(person.from_sender(pair.agent, room))
        await person.send(room, "/reset")
        await until(lambda: len(person.from_sender(pair.agent, room)) > before)
        await ask(person, pair.agent, room, "And now? reset")
        assert word not in await pair.seen_with("reset")
        assert len(await pair.threads()) == 7

        await person.send(room, "!archive")
        await person.wait_for_text(pair.agent, "!unarchive", room_id=room)
        asked = len(await pair.asked())
        before = len(person.from_sender(pair.agent, room))
        await person.send(room, "Anyone there?")
        await until(lambda: len(person.from_sender(pair.agent, room)) > before)
        assert "!unarchive" in person.from_sender(pair.agent, room)[-1].text
        assert len(await pair.asked()) == asked


@needs_bubblewrap
@pytest.mark.parametrize("killed", ["front", "far", "both"])
async def test_what_took_long_comes_back_into_its_room_once_whoever_was_killed(
    synapse: Synapse, tmp_path: Path, killed: str
) -> None:
    async with a_pair(synapse, tmp_path) as pair, Person.on(synapse) as alice:
        first = await come_in(alice, pair.agent)
        other = await new_chat(alice, pair.agent, first, "Garden")
        for room, name in ((first, "apples"), (other, "pears")):
            await alice.send(room, pair.work(name))
            await alice.wait_for_text(pair.agent, "tool said", room_id=room)
        either: list[GatewayProcess] = [pair.front, pair.far]
        ends = {"front": either[:1], "far": either[1:], "both": either}[killed]
        for process in ends:
            process.kill()
        pair.let_go("apples")
        pair.let_go("pears")
        for process in reversed(ends):
            process.start()
            await process.until_ready()

        def told(room: str, name: str) -> list[str]:
            said = [each.text for each in alice.from_sender(pair.agent, room)]
            return [text for text in said if f"{name}-is-done" in text and "tool said" not in text]

        await until(lambda: told(first, "apples") and told(other, "pears"))
        await pair.far.until_quiet()
        await pair.front.until_quiet()
        for room, theirs, others in ((first, "apples", "pears"), (other, "pears", "apples")):
            assert len(told(room, theirs)) == 1
            assert not any(others in each.text for each in alice.from_sender(pair.agent, room))
        await ask(alice, pair.agent, first, "What came of it? later")
        assert "apples-is-done" in await pair.seen_with("later")


async def test_files_from_matrix_reach_the_model_of_the_far_agent(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_pair(synapse, tmp_path) as pair, Person.on(synapse) as alice:
        room = await come_in(alice, pair.agent)
        await alice.send_file(room, b"The bicycle is green.", name="facts.txt", caption="Read this")
        await alice.wait_for_text(pair.agent, "echo: ", room_id=room)
        assert "The bicycle is green." in await pair.seen_with("Read this")
        picture = base64.b64decode(DOT)
        await alice.send_file(
            room,
            picture,
            name="dot.png",
            media_type="image/png",
            msgtype="m.image",
            caption="Look at this",
        )
        await alice.wait_for_text(pair.agent, "Look at this", room_id=room)
        assert DOT in await pair.seen_with("Look at this")


async def test_a_missing_address_is_told_when_it_starts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home, model_url="http://127.0.0.1:9/v1")
    secrets = home / ".env"
    secrets.touch(mode=0o600)
    secrets.write_text("MATRIX_PLATFORM_BACKEND=real\n")
    config = json.loads((home / "config.yaml").read_text())
    config["surfaces"] = {"matrix": {"enabled": True}}
    (home / "config.yaml").write_text(json.dumps(config))
    told = await asyncio.to_thread(parley, home, "gateway", "run")
    assert told.returncode not in {0, None}
    assert "AGENT_WS_URL" in told.stderr
    assert told.stderr.count("\n") == 1
    assert "Traceback" not in told.stderr
