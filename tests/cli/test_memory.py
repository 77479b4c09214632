"""`parley memory`, on real databases, with real files and a real editor."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
import sys
import time
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from parley.cli import run as run_parley
from parley.protocol import ChatMessage, InboundMessage, SessionSource
from parley.sessions.key import build_session_key
from parley.storage.contract import TurnEnd
from parley.storage.memory import PROFILE, Commit, Edit, NewFact, chat_place, person_place
from parley.storage.sqlite import SqliteStore
from tests.cli.command import Parley
from tests.servers.scripted_model import ScriptedModel

T = TypeVar("T")

ANN = "matrix:@ann:example.org"
BOB = "matrix:@bob:example.org"
ROOM = "matrix:group:!room%3Aexample.org"
_NASTY = "red \x1b[31mred\x1b]0;title\x07 \x9b2J bell"
_CONTROLS = {chr(code) for code in (*range(32), *range(127, 160))} - {"\n"}


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Home:
    """A home, what is written into it, and `parley memory` run in this process."""

    def __init__(self, parley: Parley, capsys: pytest.CaptureFixture[str]) -> None:
        self.parley = parley
        self.memory = parley.home / "memory"
        self._capsys = capsys

    def run(self, *arguments: str) -> Done:
        code = 0
        try:
            copy_context().run(run_parley, ["memory", *arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        said = self._capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return Done(code, said.out, said.err)

    def write(self, work: Callable[[SqliteStore], Awaitable[T]]) -> T:
        async def run() -> T:
            store = SqliteStore.open(self.parley.profile.database_file)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(run())

    def know(self, place: str, *facts: NewFact) -> list[int]:
        """The ids they have from now on."""

        async def write(store: SqliteStore) -> Commit:
            return await store.remember(place, Edit(facts), by="owner", origin="hand")

        return [change.fact for change in self.write(write).changes]

    def meet(self, *people: tuple[str, str]) -> None:
        async def write(store: SqliteStore) -> None:
            for person, name in people:
                platform, _, external_id = person.partition(":")
                await store.get_or_create_user(external_id, platform, name)

        self.write(write)


@pytest.fixture
def home(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Home:
    parley = Parley(tmp_path / "home")
    for name in ("VISUAL", "EDITOR", "PARLEY_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in parley.environment().items():
        monkeypatch.setenv(name, value)
    return Home(parley, capsys)


def _three_places(home: Home) -> tuple[int, int, int, int]:
    """One fact of the profile, one of Ann, and one in a room from each of Ann and Bob."""
    home.meet((ANN, "Ann"), (BOB, "Bob"))
    [office] = home.know(PROFILE, NewFact("The office is in Oslo"))
    [tea] = home.know(person_place(ANN), NewFact("Likes tea", "preference", 0.9, person=ANN))
    friday, cake = home.know(
        chat_place(ROOM),
        NewFact("They meet on Friday", "plan", person=ANN),
        NewFact("Bob brings the cake", "plan", person=BOB),
    )
    return office, tea, friday, cake


async def _said(
    store: SqliteStore, text: str, chat: str = "!dm:example.org", kind: str = "dm"
) -> tuple[str, int]:
    """Ann says something, to the agent alone unless it is a group: the session, and the turn."""
    source = SessionSource("matrix", chat, kind, user_id="@ann:example.org")
    lane = build_session_key(source)
    await store.submit(lane, text, InboundMessage(source, text, text))
    [claim] = await store.claim("tests", 1, ["matrix"])
    await store.commit(claim, TurnEnd("done", (ChatMessage("assistant", "Noted."),)))
    return claim.session, claim.turn


# ── looking ───────────────────────────────────────────────────────────────────────────────────


def test_before_anything_is_remembered_it_says_how_memory_comes_about(home: Home) -> None:
    for verb in ("list", "log"):
        done = home.run(verb)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("Nothing is remembered yet. The agent takes note of")
        assert home.run(verb, "--json").json == []
    assert home.run("search", "tea").out == "Nothing that is remembered holds these words.\n"
    for arguments in (("show", "1"), ("why", "1"), ("forget", "1", "--yes"), ("undo", "1")):
        gone = home.run(*arguments)
        assert (gone.code, gone.out) == (1, "")
        assert gone.err.startswith("parley: Nothing is remembered yet.")
    assert not home.parley.home.exists()


def test_the_owner_sees_everything_by_place_and_each_place_alone(home: Home) -> None:
    office, tea, friday, cake = _three_places(home)
    lines = home.run("list").out.splitlines()
    assert lines[0].split() == ["id", "kind", "said", "sure", "what"]
    assert [line for line in lines if not line.startswith(" ") and line] == [
        "this profile",
        f"person {ANN} (Ann)",
        f"chat {ROOM}",
    ]

    def ids(*arguments: str) -> list[int]:
        return [record["id"] for record in home.run("list", *arguments, "--json").json]

    assert ids() == [office, tea, friday, cake]
    assert ids("--profile-facts") == [office]
    assert ids("--person", "Ann") == [tea, friday]
    assert ids("--person", BOB) == [cake]
    assert ids("--chat", ROOM) == ids("--chat", "!room:example.org") == [friday, cake]
    assert ids("-n", "1") == [cake]
    assert "3 older ones are not shown" in home.run("list", "-n", "1").out
    assert home.run("list", "--person", "matrix:@new:example.org").out == (
        "Nothing is remembered there.\n"
    )


def test_a_fact_that_was_replaced_is_listed_only_when_asked_for(home: Home) -> None:
    [old] = home.know(PROFILE, NewFact("The office is in Oslo"))
    home.know(PROFILE, NewFact("The office is in Bergen", replaces=(old,)))
    assert "Oslo" not in home.run("list").out
    every = home.run("list", "--all").out
    [new] = [one["id"] for one in home.run("list", "--json").json]
    assert f"The office is in Oslo (replaced by {new})" in every
    shown = home.run("show", str(new))
    assert f"replaced  The office is in Oslo ({old}, " in shown.out
    record = home.run("show", str(new), "--json").json
    assert [one["id"] for one in record["replaced"]] == [old]


def test_words_are_found_in_all_places_or_in_one(home: Home) -> None:
    office, tea, _, cake = _three_places(home)
    assert [one["id"] for one in home.run("search", "cake", "--json").json] == [cake]
    assert f"person {ANN} (Ann)\n" in home.run("search", "tea").out
    assert home.run("search", "tea", "--person", BOB, "--json").json == []
    assert [one["id"] for one in home.run("search", "likes", "tea", "--json").json][:1] == [tea]
    assert [
        one["id"] for one in home.run("search", "office", "--profile-facts", "--json").json
    ] == [office]


def test_every_fact_leads_to_the_words_it_came_from(home: Home) -> None:
    home.meet((ANN, "Ann"))

    async def write(store: SqliteStore) -> tuple[str, int]:
        session, turn = await _said(store, "I only drink tea")
        edit = Edit((NewFact("Drinks only tea", "preference", person=ANN),))
        made = await store.remember(
            person_place(ANN), edit, by=ANN, origin="tool", note="asked for", turn=turn
        )
        return session, made.changes[0].fact

    session, fact = home.write(write)
    shown = home.run("why", str(fact)).out
    assert shown.startswith(f"{fact}  Drinks only tea\n\nIt came from what was said")
    assert session in shown
    assert f"  {ANN} (Ann)\n   I only drink tea\n" in shown
    assert f"person {ANN} (Ann) · asked for · by {ANN}" in shown
    record = home.run("why", str(fact), "--json").json
    assert [one["text"] for one in record["messages"]] == ["I only drink tea"]
    assert [one["kind"] for one in record["commits"]] == ["told"]
    assert record["session"]["id"] == session
    home.know(PROFILE, NewFact("The office is in Oslo"))
    assert len(home.run("log", "--json").json) == 2
    [made] = home.run("log", "--session", session[:7], "--json").json
    assert (made["session"], made["note"]) == (session, "asked for")

    assert home.write(lambda store: store.delete_session(session))
    assert "The messages it came from are gone" in home.run("why", str(fact)).out


# ── changing ──────────────────────────────────────────────────────────────────────────────────


def test_what_is_added_is_in_its_place_and_in_its_file(home: Home) -> None:
    added = home.run("add", "The", "office is in Oslo", "--kind", "place")
    assert (added.code, added.err) == (0, "")
    [record] = home.run("list", "--json").json
    assert (record["place"], record["kind"], record["origin"]) == ("profile", "place", "hand")
    assert added.out.startswith(f"{record['id']}  The office is in Oslo\n")
    assert "The office is in Oslo" in (home.memory / "MEMORY.md").read_text()

    home.meet((ANN, "Ann"))
    home.run("add", "Likes tea", "--person", "Ann")
    [tea] = home.run("list", "--person", ANN, "--json").json
    assert (tea["place"], tea["text"]) == (f"person:{ANN}", "Likes tea")
    [view] = (home.memory / "people").glob("*/USER.md")
    assert "Likes tea" in view.read_text()


def test_something_is_remembered_of_a_chat_where_nothing_was_before(home: Home) -> None:
    home.write(lambda store: _said(store, "hello", "!attic:example.org", "group"))
    home.write(lambda store: _said(store, "hi", "!attic:example.org", "channel"))
    several = home.run("add", "The roof leaks", "--chat", "!attic:example.org")
    assert (several.code, several.out) == (1, "")
    attic = "matrix:group:!attic%3Aexample.org"
    assert f"{attic}; give the whole name" in several.err
    assert home.run("add", "The roof leaks", "--chat", attic).code == 0
    [record] = home.run("list", "--chat", "!attic:example.org", "--json").json
    assert (record["place"], record["text"]) == (f"chat:{attic}", "The roof leaks")


def test_what_a_program_is_remembered_under_is_named_as_the_list_shows_it(home: Home) -> None:
    key = "api:laptop:house%2F7"
    [lamp] = home.know(person_place(key), NewFact("The lamp is on"))
    assert f"person {key}\n" in home.run("list").out
    assert [one["id"] for one in home.run("list", "--person", key, "--json").json] == [lamp]


def test_a_fact_is_said_anew_and_the_change_taken_back(home: Home) -> None:
    [office] = home.know(PROFILE, NewFact("The office is in Oslo"))
    done = home.run("edit", str(office), "The office is in Bergen")
    assert done.code == 0
    assert done.out.endswith("  The office is in Bergen\nBefore: The office is in Oslo\n")
    assert "Bergen" in (home.memory / "MEMORY.md").read_text()

    newest, first = home.run("log", "--json").json
    assert (newest["kind"], newest["by"], first["added"]) == ("edited", "owner", 1)
    diff = home.run("log", str(newest["id"])).out
    assert "Bergen" in diff
    assert "Oslo" in diff
    assert "Bergen" in json.dumps(home.run("log", str(newest["id"]), "--json").json["changes"])

    undone = home.run("undo", str(newest["id"]))
    assert undone.code == 0
    assert f"Change {newest['id']} is taken back, by change " in undone.out
    assert [one["text"] for one in home.run("list", "--json").json] == ["The office is in Oslo"]
    assert "Oslo" in (home.memory / "MEMORY.md").read_text()
    assert "undone by" in home.run("log").out
    again = home.run("undo", str(newest["id"]))
    assert (again.code, again.err.count("\n")) == (1, 1)


def _editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    file = tmp_path / "an editor"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o700)
    monkeypatch.setenv("EDITOR", f"'{file}' --wait")


def test_a_file_is_opened_in_the_editor_and_merged_when_it_closes(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _three_places(home)
    _editor(tmp_path, monkeypatch, 'sed -i s/Oslo/Bergen/ "$2"')
    done = home.run("edit")
    assert (done.code, done.err) == (0, "")
    assert "Bergen" in done.out
    assert done.out.endswith("It is remembered so.\n")
    assert "Bergen" in (home.memory / "MEMORY.md").read_text()
    assert "The office is in Bergen" in home.run("list", "--profile-facts").out

    _editor(tmp_path, monkeypatch, 'echo "- Has a dog" >> "$2"')
    assert "Has a dog" in home.run("edit", "--person", "Ann").out
    assert "Has a dog" in home.run("list", "--person", ANN).out
    [cake] = [one["id"] for one in home.run("search", "cake", "--json").json]
    _editor(tmp_path, monkeypatch, 'sed -i s/cake/pie/ "$2"')
    assert "pie" in home.run("edit", str(cake)).out
    assert "Bob brings the pie" in home.run("list", "--chat", ROOM).out

    _editor(tmp_path, monkeypatch, "exit 3")
    done = home.run("edit")
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith("ended with code 3; nothing was changed.\n")
    _editor(tmp_path, monkeypatch, "true")
    assert home.run("edit").out == "Nothing changed.\n"
    monkeypatch.setenv("VISUAL", str(tmp_path / "nowhere"))
    done = home.run("edit")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "set EDITOR to yours" in done.err


def test_what_is_learned_while_the_editor_is_open_stays(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.run("add", "The office is in Oslo")
    command = f"{sys.executable} -m parley memory add 'Lunch is at noon' > /dev/null"
    _editor(tmp_path, monkeypatch, f'{command}; sed -i s/Oslo/Bergen/ "$2"')
    assert home.run("edit").code == 0
    texts = [one["text"] for one in home.run("list", "--json").json]
    assert texts == ["The office is in Bergen", "Lunch is at noon"]


def test_a_page_that_nobody_can_make_sense_of_is_kept(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.run("add", "The office is in Oslo")
    _editor(tmp_path, monkeypatch, 'echo lost > "$2"')
    done = home.run("edit")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    kept = Path(done.err.strip().removesuffix(".").rpartition(" ")[2])
    assert kept.read_text() == "lost\n"
    shutil.rmtree(kept.parent)
    assert "Oslo" in home.run("list").out

    _editor(tmp_path, monkeypatch, 'rm "$2"')
    assert home.run("edit").err == (
        "parley: The page was deleted in the editor; nothing was changed.\n"
    )


def test_the_editor_opens_before_anything_is_remembered(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _editor(tmp_path, monkeypatch, 'echo "- The office is in Oslo" >> "$2"')
    assert home.run("edit").code == 0
    assert [one["text"] for one in home.run("list", "--json").json] == ["The office is in Oslo"]


def test_what_was_changed_by_hand_is_there_before_anything_is_shown(home: Home) -> None:
    home.run("add", "The office is in Oslo")
    file = home.memory / "MEMORY.md"
    file.write_text(file.read_text().replace("Oslo", "Bergen") + "- Lunch is at noon\n")
    listed = home.run("list").out
    assert "Bergen" in listed
    assert "Lunch is at noon" in listed
    assert "Oslo" not in listed


# ── forgetting ────────────────────────────────────────────────────────────────────────────────


def test_what_is_forgotten_is_gone_from_everywhere(home: Home) -> None:
    office, tea, _, _ = _three_places(home)
    unasked = home.run("forget", str(tea))
    assert unasked.code == 1
    assert "Likes tea" in unasked.out
    assert unasked.err.startswith("parley: Say that you mean it with --yes")
    done = home.run("forget", str(tea), str(office), str(tea), "--yes")
    assert done.out == (
        "Forgotten for good: 2 facts (1 note, 1 preference). This cannot be undone.\n"
    )
    for where in (home.run("list", "--all"), home.run("log"), home.run("log", "--json")):
        assert "tea" not in where.out
    for file in home.memory.rglob("*.md"):
        assert "tea" not in file.read_text()
    assert "forgot" in home.run("log").out
    gone = home.run("why", str(tea))
    assert (gone.code, gone.err.count("\n")) == (1, 1)


def test_everything_of_a_person_goes_and_nothing_of_others(home: Home) -> None:
    office, tea, _, cake = _three_places(home)
    home.know(person_place(ANN), NewFact("Likes coffee", person=ANN, replaces=(tea,)))
    home.run("add", "Has a dog", "--person", "Ann")
    [view] = (home.memory / "people").glob("*/USER.md")
    view.write_text("\n".join(line for line in view.read_text().splitlines() if "dog" not in line))
    done = home.run("forget", "--person", "Ann", "--everything", "--yes")
    assert done.out == (
        "Forgotten for good: 2 facts (1 note, 1 plan) and 2 earlier ones. This cannot be undone.\n"
    )
    assert {one["id"] for one in home.run("list", "--all", "--json").json} == {office, cake}
    [forgot] = [one for one in home.run("log", "--json").json if one["kind"] == "forgot"]
    assert "several places" in home.run("log", str(forgot["id"])).out
    assert not view.exists()
    again = home.run("forget", "--person", "Ann", "--everything", "--yes")
    assert (again.code, again.out) == (0, "Nothing is remembered of them.\n")


def test_the_words_of_a_message_go_too_when_that_is_asked_for(home: Home) -> None:
    async def write(store: SqliteStore) -> tuple[str, int]:
        session, turn = await _said(store, "I only drink tea")
        edit = Edit((NewFact("Drinks only tea", person=ANN),))
        made = await store.remember(person_place(ANN), edit, by=ANN, origin="tool", turn=turn)
        return session, made.changes[0].fact

    session, fact = home.write(write)
    done = home.run("forget", str(fact), "--words", "--yes")
    assert "1 fact (1 note), with the words of 1 message." in done.out

    async def texts(store: SqliteStore) -> str:
        return " ".join(e.message.text for e in await store.transcript(session, whole=True))

    assert "tea" not in home.write(texts)


def test_in_a_terminal_it_asks_first_and_shows_what_goes(home: Home) -> None:
    [office] = home.know(PROFILE, NewFact("The office is in Oslo"))
    for answer, code in (("n", 1), ("y", 0)):
        terminal = home.parley.terminal("memory", "forget", str(office))
        terminal.expect_exact("The office is in Oslo")
        terminal.expect_exact("Forget this, for good?")
        terminal.sendline(answer)
        terminal.expect_exact("cannot be undone" if code == 0 else "Nothing was forgotten")
        terminal.wait()
        assert terminal.exitstatus == code
        assert ("Oslo" in home.run("list").out) is (code == 1)


# ── moving ────────────────────────────────────────────────────────────────────────────────────


def test_what_was_exported_is_imported_once(home: Home, tmp_path: Path) -> None:
    _three_places(home)
    file = tmp_path / "memory.json"
    done = home.run("export", str(file))
    assert (done.code, done.out) == (0, f"What is remembered is in {file}.\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "--force" in home.run("export", str(file)).err
    assert home.run("export", str(file), "--force").code == 0
    assert json.loads(home.run("export").out)["facts"]
    assert len(json.loads(home.run("export", "-", "--person", "Ann").out)["facts"]) == 2

    again = home.run("import", str(file))
    assert (again.code, again.out) == (0, "Imported: 0 new, 4 known already.\n")
    other = Parley(tmp_path / "other")
    there = other.run("memory", "import", str(file))
    assert (there.returncode, there.stderr) == (0, "")
    assert there.stdout == "Imported: 4 new, 0 known already.\n"
    texts = {one["text"] for one in other.json("memory", "list", "--json")}
    assert texts == {one["text"] for one in home.run("list", "--json").json}


@pytest.mark.parametrize(
    "content",
    [b"this is no JSON", b"\xff\xfe", b"[]", b'{"facts": 5}', b"[" * 100_000],
    ids=["words", "bytes", "list", "odd", "deep"],
)
def test_a_file_that_is_no_export_is_refused(home: Home, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "memory.json"
    file.write_bytes(content)
    done = home.run("import", str(file))
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "export" in done.err or "facts" in done.err
    nowhere = home.run("import", str(tmp_path / "nowhere"))
    assert (nowhere.code, "cannot be read: No such file" in nowhere.err) == (1, True)


# ── odd days ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("show 999", "There is no fact 999 here"),
        ("why 999", "There is no fact 999 here"),
        ("edit 999 words", "There is no fact 999 here"),
        ("forget 999 --yes", "There is no fact 999 here"),
        ("undo 999", "There is no change 999 here"),
        ("log 999", "There is no change 999 here"),
        ("show 99999999999999999999", "Nothing has the number 99999999999999999999"),
        ("forget 1 99999999999999999999", "Nothing has the number 99999999999999999999"),
        ("log --session zz", "There is no session that begins with zz"),
        ("list --person Eve", "Nobody called Eve has spoken here"),
        ("list --chat attic", "There is no chat attic"),
        ("list --chat attic --person Ann", "Give one of --person, --chat and --profile-facts"),
        ("forget --everything", "Give the ids of what to forget"),
        ("forget --person Ann", "Give the ids of what to forget"),
        ("forget 1 --person Ann --everything", "Give the ids of what to forget"),
        ("edit 1 --person Ann", "Give an ID, or --person or --chat"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(home: Home, arguments: str, sentence: str) -> None:
    _three_places(home)
    done = home.run(*arguments.split())
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"parley: {sentence}")
    assert done.err.count("\n") == 1


def test_nothing_that_was_said_can_steer_the_terminal(home: Home) -> None:
    home.meet((ANN, _NASTY))
    [fact] = home.know(person_place(ANN), NewFact(_NASTY, person=ANN))
    [commit] = [one["id"] for one in home.run("log", "--json").json]
    for arguments in (
        ["list"],
        ["show", str(fact)],
        ["why", str(fact)],
        ["log", str(commit)],
        ["export"],
        ["list", "--json"],
        ["why", str(fact), "--json"],
        ["edit", str(fact), "new words"],
    ):
        done = home.run(*arguments)
        assert "red" in done.out, arguments
        assert not _CONTROLS & set(done.out + done.err), arguments


def test_the_command_itself_tells_of_one_profile_and_not_of_another(home: Home) -> None:
    home.know(PROFILE, NewFact("The office is in Oslo"))
    assert home.parley.run("profile", "create", "ops").returncode == 0
    listed = home.parley.run("memory", "list", "--profile", "ops")
    assert (listed.returncode, "Oslo" in listed.stdout, listed.stderr) == (0, False, "")
    assert "Oslo" in home.parley.run("memory", "list").stdout


async def test_a_running_gateway_follows_with_its_next_turn(tmp_path: Path) -> None:
    async with ScriptedModel() as model:
        parley = Parley(
            tmp_path / "home",
            {
                "PARLEY_MODEL_PROVIDER": "scripted",
                "PARLEY_PROVIDERS_SCRIPTED_BASE_URL": model.base_url,
                "PARLEY_PROVIDERS_SCRIPTED_MODEL": "scripted",
            },
        )

        def beside() -> list[bool]:
            told: list[bool] = []
            with parley.gateway():
                for change in (("add", "The office is in Oslo"), ("forget", "1", "--yes")):
                    assert parley.run("memory", *change).returncode == 0
                    assert parley.run("chat", "-m", "hello").stdout == "echo: hello\n"
                    told.append(
                        "office is in Oslo" in json.dumps(model.requests[-1].json["messages"])
                    )
            return told

        assert await asyncio.to_thread(beside) == [True, False]


def test_a_shell_completes_the_ids_of_facts(home: Home) -> None:
    [office] = home.know(PROFILE, NewFact("The office is in Oslo"))
    request = {
        "_PARLEY_COMPLETE": "complete_bash",
        "COMP_WORDS": "parley memory show ",
        "COMP_CWORD": "3",
    }
    assert Parley(home.parley.home, request).run().stdout == f"{office}\n"


def test_a_long_memory_is_listed_in_a_moment(home: Home) -> None:
    home.know(PROFILE, *(NewFact(f"Shelf {n} holds box {n * 7}") for n in range(2_000)))
    home.run("list")
    begun = time.perf_counter()
    assert len(home.run("list", "--json", "-n", "5000").json) == 2_000
    assert time.perf_counter() - begun < 30
