"""The terminal's socket: who may open it, what it says, and what breaks on it."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from parley.surfaces.terminal import surface as terminal_surface
from parley.surfaces.terminal.client import Disconnected, TerminalClient
from parley.surfaces.terminal.surface import TerminalSurface
from parley.surfaces.terminal.wire import LONGEST_LINE, Accepted, Deliver, Show
from tests.gateway.house import House
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.surfaces.terminal import Line
from tests.waiting import until


async def raw(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(path, limit=LONGEST_LINE)


# ── who may ──


async def test_only_the_owner_may_open_the_socket(served: House, socket_file: Path) -> None:
    found = socket_file.stat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600


_KNOCK = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX) as knocking:
    try:
        knocking.connect(sys.argv[1])
        knocking.sendall(b'{"type":"hello","chat":"main"}\\n')
        print("heard:", knocking.recv(1000).decode())
    except OSError as error:
        print("refused:", type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("opened_up", [False, True])
async def test_another_user_is_refused(house: House, opened_up: bool) -> None:
    """By the socket's mode; and if someone opens that up, by asking the kernel who calls."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        if any(not above.stat().st_mode & 0o001 for above in Path(folder).parents):
            pytest.skip("another user cannot even come near")
        socket_file = Path(folder) / "s"
        house.more_surfaces = [TerminalSurface(socket_file)]
        await house.open()
        if opened_up:
            socket_file.chmod(0o666)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-c", _KNOCK, str(socket_file), stdout=subprocess.PIPE
        )
        said, _ = await child.communicate()
        await house.close()
    assert said.decode().strip() in (
        ("heard:", "refused: ConnectionResetError", "refused: BrokenPipeError")
        if opened_up
        else ("refused: PermissionError",)
    )


async def test_a_socket_left_by_a_dead_process_is_replaced(house: House, socket_file: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(socket_file))
    house.more_surfaces = [TerminalSurface(socket_file)]
    await house.open()
    async with Line(socket_file) as line:
        await line.hello()
        assert await line.ask("hello", "1") == "echo: hello"
    await house.close()
    assert not socket_file.exists()


# ── talking ──


async def test_a_terminal_is_welcomed_answered_and_shown_the_way(line: Line) -> None:
    assert await line.ask("[[tool now {}]] time?", "1") != ""
    await until(lambda: [s for s in line.all_of(Show) if s.event == "ended"])
    assert line.accepted("1") == "queued"
    events = [show.event for show in line.all_of(Show)]
    assert events == ["started", "step", "tool", "tool_done", "step", "text", "ended"]
    [reply] = line.all_of(Deliver)
    assert (reply.kind, reply.turn) == ("reply", 1)
    assert line.streamed() == reply.text


async def test_the_model_is_told_who_sits_there(line: Line, served: House) -> None:
    await line.ask("hello", "1")
    system = served.model.requests[0].json["messages"][0]["content"]
    assert system.endswith("You are talking in a terminal with Ann.")


async def test_the_same_message_twice_is_one(line: Line) -> None:
    await line.ask("hello", "1")
    await line.say("hello", "1")
    await until(lambda: len(line.all_of(Accepted)) == 2)
    assert [a.state for a in line.all_of(Accepted)] == ["queued", "duplicate"]
    await line.ask("bye", "2")
    assert len(line.all_of(Deliver)) == 2


async def test_speaking_before_hello_is_refused(served: House, socket_file: Path) -> None:
    client = await TerminalClient.connect(socket_file)
    await client.say("1", "hello")
    assert await client.receive() == Accepted("1", "refused", "Say hello first.")
    await client.close()


async def test_status_can_be_asked_without_joining(served: House, socket_file: Path) -> None:
    client = await TerminalClient.connect(socket_file)
    status = (await client.status()).status
    assert status["ready"] is True
    assert status["pid"] == os.getpid()
    await client.close()


async def test_nobody_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Disconnected, match="No gateway is running here"):
        await TerminalClient.connect(tmp_path / "nothing")


# ── several terminals ──


async def test_two_terminals_of_one_conversation_see_the_same(
    line: Line, socket_file: Path
) -> None:
    async with Line(socket_file) as second:
        await second.hello()
        await line.ask("hello", "1")
        await until(lambda: second.answer_to("1"))
        assert second.streamed() == line.streamed() == "echo: hello"
        assert await second.ask("and me?", "2") == "echo: and me?"
        await until(lambda: line.answer_to("2"))


async def test_another_conversation_sees_nothing(line: Line, socket_file: Path) -> None:
    async with Line(socket_file) as other:
        await other.hello("elsewhere")
        await line.ask("hello", "1")
        await other.ask("hi", "2")
        assert other.streamed() == "echo: hi"
        assert len(other.all_of(Deliver)) == len(line.all_of(Deliver)) == 1


async def test_a_terminal_can_move_to_another_conversation(
    line: Line, served: House, socket_file: Path
) -> None:
    await line.ask("hello", "1")
    async with Line(socket_file) as mover:
        await mover.client.hello("main")
        await mover.hello("elsewhere")
        await line.ask("again", "2")
        assert await mover.ask("hi", "3") == "echo: hi"
        assert mover.answer_to("2") is None


# ── breaks ──


async def test_a_reply_nobody_was_there_for_comes_at_the_next_hello(
    served: House, socket_file: Path
) -> None:
    async with Line(socket_file) as line:
        await line.hello()
        await line.say("[[delay 0.2]] hello", "1")
        await until(lambda: line.accepted("1"))
    await until(lambda: served.model.total == 1 and served.model.open_streams == 0)
    async with Line(socket_file) as elsewhere:
        await elsewhere.hello("elsewhere")
        await elsewhere.ask("hi", "2")
        assert elsewhere.answer_to("1") is None
    async with Line(socket_file) as back:
        await back.hello()
        await until(lambda: back.answer_to("1"))
        assert await back.ask("next", "3") == "echo: next"


async def test_a_reply_that_was_not_confirmed_comes_again_under_the_same_key(
    served: House, socket_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_surface, "_SHOWN_WITHIN", 0.1)
    async with Line(socket_file, confirms=False) as line:
        await line.hello()
        await line.say("hello", "1")
        await until(lambda: len(line.all_of(Deliver)) >= 2)
        first, second = line.all_of(Deliver)[:2]
        assert first == second
        await line.client.ack(first.delivery)
        assert served.store is not None
        while (await served.store.health()).undelivered:
            await asyncio.sleep(0.01)


async def test_an_unconfirmed_reply_comes_again_after_a_restart(
    served: House, socket_file: Path
) -> None:
    async with Line(socket_file, confirms=False) as line:
        await line.hello()
        await line.ask("hello", "1")
        key = line.all_of(Deliver)[0].key
    await served.crash()
    served.more_surfaces = [TerminalSurface(socket_file)]
    await served.open()
    async with Line(socket_file) as line:
        await line.hello()
        await until(lambda: line.answer_to("1"))
        assert [d.key for d in line.all_of(Deliver)] == [key]
        await line.ask("next", "2")
        assert len(line.all_of(Deliver)) == 2


async def test_a_stopped_gateway_ends_the_conversation_cleanly(line: Line, served: House) -> None:
    await served.close()
    await until(lambda: line.ended)
    assert line.ended == "The gateway went away."


async def test_a_terminal_that_stops_reading_does_not_hold_up_others(
    line: Line,
    socket_file: Path,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # More than one answer and what was streamed of it: who reads is never that far behind.
    monkeypatch.setattr(terminal_surface, "_MOST_UNREAD", 600_000)
    # A reader takes in twice its limit, and then no more.
    reader, asleep = await asyncio.open_unix_connection(socket_file, limit=1000)
    asleep.write(b'{"type":"hello","chat":"main"}\n')
    await asleep.drain()
    for number in range(8):
        stage.then(Reply(text="x" * 200_000, chunks=20))
        text = await line.ask("hello", str(number))
        assert len(text) == 200_000
    async with asyncio.timeout(60):
        assert len(await reader.read()) < 2_000_000, "it was let go"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    asleep.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\n",
        b"hello\n",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b'{"type":"nonsense"}\n',
        b'{"type":"say"}\n',
        b'{"type":["say"]}\n',
        b"\xff\xfe\n",
        b'{"type":"welcome","version":"1","answered_by":"x","pid":1}\n',
        b'{"type":"hello","chat":[]}\n',
        b'{"type":"hello","chat":7}\n',
        b'{"type":"say","id":1,"text":"x"}\n',
        b'{"type":"say","id":"1","text":{}}\n',
        b'{"type":"ack","delivery":[]}\n',
        b"[" * 100_000 + b"\n",
    ],
    ids=lambda line: line[:24].decode(errors="replace"),
)
async def test_a_line_that_is_no_frame_gets_an_answer_and_the_line_stays_open(
    served: House, socket_file: Path, garbage: bytes
) -> None:
    reader, writer = await raw(socket_file)
    writer.write(garbage)
    async with asyncio.timeout(60):
        assert json.loads(await reader.readline())["type"] == "problem"
        writer.write(b'{"type":"hello","chat":"main"}\n')
        assert json.loads(await reader.readline())["type"] == "welcome"
    writer.close()


async def test_half_a_surrogate_pair_is_taken(served: House, socket_file: Path) -> None:
    reader, writer = await raw(socket_file)
    writer.write(b'{"type":"hello","chat":"main"}\n{"type":"say","id":"1","text":"a\\ud83d b"}\n')
    async with asyncio.timeout(60):
        while True:
            frame = json.loads(await reader.readline())
            if frame["type"] == "deliver":
                break
    assert frame["text"].startswith("echo: a")
    writer.write(json.dumps({"type": "ack", "delivery": frame["delivery"]}).encode() + b"\n")
    assert served.store is not None
    while (await served.store.health()).undelivered:
        await asyncio.sleep(0.01)
    writer.close()


async def test_a_line_that_is_too_long_is_refused_and_others_go_on(
    line: Line, socket_file: Path
) -> None:
    reader, writer = await raw(socket_file)
    writer.write(b'{"type":"say","id":"1","text":"' + b"x" * (LONGEST_LINE + 1000) + b'"}\n')
    async with asyncio.timeout(60):
        answer = json.loads(await reader.readline())
    assert answer == {"type": "problem", "sentence": "That message is too long."}
    assert await line.ask("hello", "2") == "echo: hello"
    writer.close()


async def test_a_long_message_is_taken_whole(line: Line, served: House) -> None:
    await line.say("y" * 1_000_000, "1")
    await until(lambda: line.accepted("1") == "queued")
    await until(lambda: line.answer_to("1"))
    [said, _] = await served_transcript(served)
    assert len(said) == 1_000_000


async def served_transcript(house: House) -> list[str]:
    assert house.store is not None
    [session] = await house.store.sessions()
    return [e.message.text for e in await house.store.transcript(session.id, whole=True)]


async def test_a_terminal_that_vanishes_in_the_midst_harms_nobody(
    line: Line, socket_file: Path
) -> None:
    for _ in range(20):
        _, writer = await raw(socket_file)
        writer.write(b'{"type":"hello","chat":"main"}\n{"type":"say","id":"')
        writer.transport.abort()
    assert await line.ask("hello", "1") == "echo: hello"


async def test_a_reply_whose_frame_is_longer_than_a_message_may_be_arrives(
    line: Line, stage: Stage
) -> None:
    text = "\x01" * (LONGEST_LINE // 6 + 1)  # six bytes each, as JSON writes it
    stage.then(Reply(text=text, chunks=4))
    assert await line.ask("much", "1") == text
