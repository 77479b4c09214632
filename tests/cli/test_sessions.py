"""`parley sessions`, on real databases."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley.protocol import ChatMessage, InboundMessage, SessionSource, ToolCall
from parley.storage.contract import (
    Claim,
    Draft,
    NewSession,
    SessionRecord,
    SetTitle,
    TurnEnd,
    UndoTurn,
)
from parley.storage.sqlite import SqliteStore
from tests.cli.command import Parley
from tests.servers.scripted_model import ScriptedModel

_NASTY = "red \x1b[31mred\x1b]0;title\x07 back\rspace\x08 \x9b2J bell"
_CONTROLS = {chr(code) for code in (*range(32), *range(127, 160))} - {"\n", "\t"}


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    return Parley(tmp_path / "home")


@asynccontextmanager
async def _store(parley: Parley) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(parley.profile.database_file)
    try:
        yield store
    finally:
        await store.close()


class Talk:
    """A conversation in a terminal, written straight into the store."""

    def __init__(self, store: SqliteStore, chat: str) -> None:
        self.source = SessionSource("terminal", chat)
        self.lane = f"agent:main:terminal:dm:{chat}"
        self._store = store
        self._count = 0

    async def begin(self, text: str) -> Claim:
        self._count += 1
        message = InboundMessage(self.source, text, f"{self.lane}-{self._count}")
        await self._store.submit(self.lane, message.event_id, message)
        return (await self._store.claim("tests", 1, ["terminal"]))[0]

    async def say(self, text: str, *answer: ChatMessage) -> SessionRecord:
        claim = await self.begin(text)
        replies = answer or (ChatMessage("assistant", f"re: {text}"),)
        await self._store.commit(claim, TurnEnd("done", replies))
        return await self.session()

    async def session(self) -> SessionRecord:
        found = await self._store.session_of(self.lane)
        assert found is not None
        return found

    async def command(self, effect: SetTitle | UndoTurn | NewSession) -> None:
        self._count += 1
        message = InboundMessage(self.source, "/it", f"{self.lane}-{self._count}")
        receipt = await self._store.submit(self.lane, message.event_id, message, kind="command")
        draft = Draft(message.event_id, self.source, "done")
        await self._store.answer(self.lane, receipt.inbox_id, effect, lambda _: draft)


async def _one_talk(parley: Parley, texts: Sequence[str] = ("hello", "and again")) -> str:
    async with _store(parley) as store:
        talk = Talk(store, "main")
        for text in texts:
            await talk.say(text)
        return (await talk.session()).id


def _tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("verb", ["list", "show abc", "export abc", "delete abc --yes"])
def test_with_no_database_nothing_is_made(parley: Parley, verb: str) -> None:
    done = parley.run("sessions", *verb.split())
    if verb == "list":
        assert (done.returncode, "no sessions yet" in done.stdout) == (0, True)
        assert parley.json("sessions", "list", "--json") == []
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "parley: There is no session abc: none has been begun here yet.\n"
    assert not parley.home.exists()


def test_an_empty_database_is_left_empty(parley: Parley) -> None:
    parley.home.mkdir()
    parley.profile.database_file.touch()
    assert "no sessions yet" in parley.run("sessions", "list").stdout
    assert _tree(parley.home) == ["parley.db"]
    assert parley.profile.database_file.stat().st_size == 0


async def test_the_list_begins_with_the_last_used_and_keeps_to_its_limit(parley: Parley) -> None:
    async with _store(parley) as store:
        talks = [Talk(store, name) for name in ("one", "two", "three")]
        records = [await talk.say("hello") for talk in talks]
        await talks[-1].command(SetTitle("A walk\nin the rain"))
    lines = parley.run("sessions", "list").stdout.splitlines()
    assert lines[0].split() == ["id", "last", "used", "turns", "where", "title"]
    assert [line.split("*")[0] for line in lines[1:]] == [r.id for r in reversed(records)]
    assert lines[1].endswith("terminal three  A walk in the rain")
    listed = parley.json("sessions", "list", "--limit", "2", "--json")
    assert [one["id"] for one in listed] == [records[2].id, records[1].id]
    assert listed[0]["turns"] == 1
    assert listed[0]["updated_at"].endswith("+00:00")


async def test_a_transcript_is_shown_with_its_times_by_a_part_of_its_id(parley: Parley) -> None:
    session = await _one_talk(parley)
    shown = parley.run("sessions", "show", session[:7].upper()).stdout
    assert shown.startswith(f"Session {session}\nterminal main · 2 turns")
    said = [line.strip() for line in shown.splitlines() if line.startswith("  ")]
    assert said == ["hello", "re: hello", "and again", "re: and again"]
    record = parley.json("sessions", "show", session, "--json")
    assert [one["text"] for one in record["messages"]] == said
    times = [one["at"][:19].replace("T", " ") for one in record["messages"]]
    assert [line[:19] for line in shown.splitlines() if line.endswith(("you", "Parley"))] == times


async def test_tools_are_part_of_what_is_shown_and_exported(parley: Parley) -> None:
    call = ToolCall("c1", "read_file", {"path": "notes.txt"})
    async with _store(parley) as store:
        session = await Talk(store, "main").say(
            "read it",
            ChatMessage("assistant", "", tool_calls=(call,)),
            ChatMessage("tool", "three ``` ticks", tool_call_id="c1", tool_name="read_file"),
            ChatMessage("assistant", "I have", note="interrupted"),
        )
    shown = parley.run("sessions", "show", session.id).stdout
    assert '[asks for read_file {"path": "notes.txt"}]' in shown
    assert "read_file says\n  three ``` ticks" in shown
    assert "Parley (cut short)" in shown
    exported = parley.run("sessions", "export", session.id).stdout
    assert "````\nthree ``` ticks\n````\n" in exported


async def test_an_unclear_id_names_the_sessions_it_may_mean(parley: Parley) -> None:
    async with _store(parley) as store:
        ids = []
        for number in range(17):  # one more than there are first letters
            source = SessionSource("terminal", str(number))
            await store.submit(str(number), str(number), InboundMessage(source, "x", "x"))
            found = await store.session_of(str(number))
            assert found is not None
            ids.append(found.id)
    shared = max("0123456789abcdef", key=lambda letter: sum(i[0] == letter for i in ids))
    meant = sorted(one for one in ids if one[0] == shared)
    done = parley.run("sessions", "show", shared)
    assert done.returncode == 1
    assert done.stderr.startswith(f"parley: Several sessions begin with {shared}: {meant[0]}, ")
    assert done.stderr.count("\n") == 1
    unknown = parley.run("sessions", "show", "xyz")
    assert unknown.stderr.startswith("parley: There is no session that begins with xyz; ")
    assert unknown.stderr.count("\n") == 1


async def test_nothing_that_was_said_can_steer_the_terminal(parley: Parley) -> None:
    async with _store(parley) as store:
        talk = Talk(store, "main")
        await talk.say(_NASTY, ChatMessage("assistant", _NASTY))
        await talk.command(SetTitle(_NASTY))
        session = (await talk.session()).id
    for verb in (["list"], ["show", session], ["export", session]):
        shown = parley.run("sessions", *verb).stdout
        assert "bell" in shown
        assert not _CONTROLS & set(shown)
    for verb in (
        ["list", "--json"],
        ["show", session, "--json"],
        ["export", session, "-f", "json"],
    ):
        shown = parley.run("sessions", *verb).stdout
        assert not _CONTROLS & set(shown)
        record = json.loads(shown)
        assert (record[0] if isinstance(record, list) else record)["title"] == _NASTY


async def test_what_was_undone_is_neither_shown_nor_exported(parley: Parley) -> None:
    async with _store(parley) as store:
        talk = Talk(store, "main")
        await talk.say("keep this")
        await talk.say("a slip")
        await talk.command(UndoTurn())
        session = (await talk.session()).id
    for verb in ("show", "export"):
        shown = parley.run("sessions", verb, session).stdout
        assert "keep this" in shown
        assert "a slip" not in shown


async def test_an_export_holds_all_even_what_prompts_no_longer_do(parley: Parley) -> None:
    async with _store(parley) as store:
        talk = Talk(store, "main")
        await talk.say("the beginning")
        session = (await talk.say("the end")).id
        entries = await store.transcript(session)
        await store.move_window(session, entries[-1].id)
        assert len(await store.transcript(session)) == 1
    assert "the beginning" in parley.run("sessions", "export", session).stdout
    assert "the beginning" in parley.run("sessions", "show", session).stdout


async def test_an_exported_file_is_private_and_is_not_overwritten_unasked(
    parley: Parley, tmp_path: Path
) -> None:
    session = await _one_talk(parley)
    file = tmp_path / "talk.md"
    done = parley.run("sessions", "export", session, "--output", str(file))
    assert (done.returncode, done.stdout) == (0, f"Session {session} is in {file} (4 messages).\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "hello" in file.read_text()

    file.write_text("mine")
    file.chmod(0o644)
    again = parley.run("sessions", "export", session, "--output", str(file))
    assert (again.returncode, file.read_text()) == (1, "mine")
    assert "--force" in again.stderr
    arguments = ("sessions", "export", session, "-f", "json", "-o", str(file), "--force")
    assert parley.run(*arguments).returncode == 0
    assert [one["text"] for one in json.loads(file.read_text())["messages"]][:1] == ["hello"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for place in (tmp_path, tmp_path / "nowhere" / "x.md"):
        bad = parley.run("sessions", "export", session, "-o", str(place), "--force")
        assert (bad.returncode, bad.stderr.count("\n")) == (1, 1)


async def test_a_session_is_deleted_when_the_person_says_yes(parley: Parley) -> None:
    session = await _one_talk(parley)
    unasked = parley.run("sessions", "delete", session[:6])
    assert unasked.returncode == 1
    assert (
        unasked.stderr
        == f"parley: Say that you mean it: `parley sessions delete {session} --yes`.\n"
    )
    for answer, code in (("n", 1), ("y", 0)):
        terminal = parley.terminal("sessions", "delete", session[:6])
        terminal.expect_exact(f"Delete session {session} with 2 turns, for good?")
        terminal.sendline(answer)
        terminal.expect_exact("is deleted" if code == 0 else "Nothing was deleted")
        terminal.wait()
        assert terminal.exitstatus == code
        assert (session in parley.run("sessions", "list").stdout) is (code == 1)
    gone = parley.run("sessions", "delete", session, "--yes")
    assert (gone.returncode, "no session that begins with" in gone.stderr) == (1, True)


async def test_a_session_with_an_unfinished_turn_is_not_deleted(parley: Parley) -> None:
    async with _store(parley) as store:
        talk = Talk(store, "main")
        await talk.begin("hello")
        session = (await talk.session()).id
    done = parley.run("sessions", "delete", session, "--yes")
    assert done.returncode == 1
    assert "broken off" in done.stderr
    assert "hello" in parley.run("sessions", "show", session).stdout


async def test_the_verbs_work_beside_a_running_gateway(tmp_path: Path) -> None:
    async with ScriptedModel() as model:
        served = Parley(
            tmp_path / "home",
            {
                "PARLEY_MODEL_PROVIDER": "scripted",
                "PARLEY_PROVIDERS_SCRIPTED_BASE_URL": model.base_url,
                "PARLEY_PROVIDERS_SCRIPTED_MODEL": "scripted",
            },
        )
        await asyncio.to_thread(_beside_a_gateway, served)


def _beside_a_gateway(parley: Parley) -> None:
    with parley.gateway() as gateway:
        assert parley.run("chat", "-m", "hello").stdout == "echo: hello\n"
        (session,) = parley.json("sessions", "list", "--json")
        assert "echo: hello" in parley.run("sessions", "show", session["id"]).stdout

        slow = parley.terminal("chat", "-m", "[[delay 30]] slow", "-c", "slow")
        deadline = 100
        while (found := _running(parley)) is None and deadline:
            deadline -= 1
        assert found is not None
        refused = parley.run("sessions", "delete", found, "--yes")
        assert (refused.returncode, "is being answered" in refused.stderr) == (1, True)
        slow.close(force=True)

        assert parley.run("sessions", "delete", session["id"], "--yes").returncode == 0
        assert parley.run("chat", "-m", "still there?").stdout == "echo: still there?\n"
        assert gateway.poll() is None


def _running(parley: Parley) -> str | None:
    """The session that a turn is running in; the question itself is a look from outside."""
    for session in parley.json("sessions", "list", "--json"):
        messages = parley.json("sessions", "show", session["id"], "--json")["messages"]
        if [one["role"] for one in messages] == ["user"]:
            return str(session["id"])
    return None


async def test_a_shell_completes_the_ids_of_sessions(parley: Parley) -> None:
    session = await _one_talk(parley)
    request = {
        "_PARLEY_COMPLETE": "complete_bash",
        "COMP_WORDS": f"parley sessions show {session[:3]}",
        "COMP_CWORD": "3",
    }
    assert Parley(parley.home, request).run().stdout == f"{session}\n"
    parley.profile.database_file.write_bytes(b"this is no database, " * 500)
    done = Parley(parley.home, request).run()
    assert (done.stdout.strip(), done.stderr) == ("", "")


async def test_a_database_that_cannot_be_used_gets_one_sentence(parley: Parley) -> None:
    await _one_talk(parley)
    file = parley.profile.database_file
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    newer = parley.run("sessions", "list")
    assert (newer.returncode, "newer Parley" in newer.stderr) == (1, True)
    file.write_bytes(b"this is no database, " * 500)
    for verb in ("list", "show abc", "delete abc --yes"):
        done = parley.run("sessions", *verb.split())
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "`parley doctor` says more" in done.stderr
