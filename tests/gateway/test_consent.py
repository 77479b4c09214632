"""How far a person's word reaches: this call, this session, always; and for whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parley.agent.tools import TOOLS, Tool, ToolContext, Wanted
from parley.agent.tools.base import AnyArguments
from parley.protocol import ApprovalAsked
from tests.gateway.asking_tool import AskingTool
from tests.gateway.family import Family
from tests.gateway.house import House
from tests.gateway.room import DENIED, NOTHING, Room, a_call, a_deed, direct, in_thread
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until

WITH_TOOL = {"tools": ["deed"]}
DONE = Reply(text="Done.")


@pytest.fixture
def deed(monkeypatch: pytest.MonkeyPatch) -> AskingTool:
    return a_deed(monkeypatch)


@pytest.fixture
async def room(house: House, deed: AskingTool) -> Room:
    house.desk_type = Room
    desk = await house.open(agent=WITH_TOOL)
    assert isinstance(desk, Room)
    return desk


# ── what is shown ──


async def test_a_question_is_sent_where_the_turn_came_from(room: Room, stage: Stage) -> None:
    stage.then(a_call(), DONE)
    await room.tell("ann", "please", at=in_thread)
    id = await room.question()
    [asked] = [d for d in room.sent if d.text in room.questions]
    assert asked.source.thread_id == "t1"
    assert asked.text == (
        'May I use `deed` with `{"word": "a"}`?\n\nAnswer `!yes` or `!no`; `!yes session` or '
        f"`!yes always` allows this exact call from now on. (`{id}`)"
    )


async def test_nothing_in_a_call_is_hidden_from_who_allows_it(room: Room, stage: Stage) -> None:
    stage.then(a_call("safe\u202e\u200b\x00\r\n\x1b[2J\x85 rm"), DONE)
    await room.tell("ann", "please")
    await room.question()
    [asked] = room.questions
    shown = asked.partition("\n\nAnswer ")[0]
    assert shown == (
        "May I use `deed` with these arguments?\n\n```\nword, 2 lines:\n"
        "1 | safe⟨U+202E⟩⟨U+200B⟩⟨U+0000⟩⟨CR⟩\n2 | ⟨ESC⟩[2J⟨U+0085⟩ rm\n```"
    )
    [live] = room.shown(ApprovalAsked)
    assert live.question == shown


async def test_what_is_shown_are_the_arguments_as_they_were_read(
    room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call("a", times="3"), DONE)
    first = await room.tell("ann", "please")
    await room.question()
    assert room.questions[0].startswith('May I use `deed` with `{"word": "a", "times": 3}`?')
    await room.hear("ann", "!yes")
    await room.reply_to(first)
    assert deed.done == [{"word": "a", "times": 3}]


async def test_what_is_too_long_to_be_shown_is_neither_asked_nor_done(
    house: House, room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call("a" * 30_000), DONE)
    assert await room.hear("ann", "please") == "Done."
    assert "too long to be shown" in house.words()[-1]
    assert (room.questions, deed.done) == ([], [])


async def test_why_it_is_asked_stands_below_what_is_asked(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_deed(monkeypatch, Wanted("tidy up", reasons=("It read `http://a\u202e`.",)))
    house.desk_type = Room
    room = await house.open(agent=WITH_TOOL)
    assert isinstance(room, Room)
    stage.then(a_call(), DONE)
    await room.tell("ann", "please")
    await room.question()
    shown = room.questions[0].partition("\n\nAnswer ")[0]
    assert shown == "May I tidy up?\n\nWhy: It read `http://a⟨U+202E⟩`."


# ── the words ──


@pytest.mark.parametrize("word", ["!yes", "!YES", " !yes once ", "/approve", "!yes {id}"])
async def test_a_yes_is_a_yes(room: Room, stage: Stage, deed: AskingTool, word: str) -> None:
    stage.then(a_call(), DONE)
    first = await room.tell("ann", "please")
    id = await room.question()
    assert await room.hear("ann", word.format(id=id)) == "Allowed: `deed`."
    assert await room.reply_to(first) == "Done."
    assert len(deed.done) == 1


@pytest.mark.parametrize("word", ["!no", "!No", "/deny", "/deny {id}", "!no {id}"])
async def test_a_no_is_a_no(
    house: House, room: Room, stage: Stage, deed: AskingTool, word: str
) -> None:
    stage.then(a_call(), DONE)
    first = await room.tell("ann", "please")
    id = await room.question()
    assert await room.hear("ann", word.format(id=id)) == "Refused: `deed`."
    assert await room.reply_to(first) == "Done."
    assert (deed.done, house.words()[-1]) == ([], DENIED)


@pytest.mark.parametrize("word", ["!yess", "! yes", "!yes!", "ok", "please !yes"])
async def test_what_is_not_quite_a_yes_is_none(
    room: Room, stage: Stage, deed: AskingTool, word: str
) -> None:
    stage.then(a_call(), DONE)
    await room.tell("ann", "please")
    await room.question()
    await room.tell("ann", word)
    assert await room.hear("ann", "/deny") == "Refused: `deed`."
    assert deed.done == []


async def test_too_many_words_answer_nothing(room: Room, stage: Stage, deed: AskingTool) -> None:
    stage.then(a_call(), DONE)
    await room.tell("ann", "please")
    id = await room.question()
    said = await room.hear("ann", f"!yes {id} and all the others")
    assert said.startswith("`and` is not understood, and the question still waits.")
    assert "`/yes [once|session|always] [ID]`" in await room.hear("ann", "!yes forever")
    assert deed.done == []


@pytest.mark.parametrize("word", ["!yes", "!yes always", "!no"])
async def test_where_several_questions_wait_a_word_without_an_id_answers_none(
    house: House, room: Room, stage: Stage, deed: AskingTool, word: str
) -> None:
    stage.then(a_call(), DONE)
    first = await room.tell("ann", "please")
    id = await room.question()
    assert house.store is not None
    known = await house.store.question(id)
    assert known is not None
    other = replace(known, id="appr_other", call="another", what="run these 2 lines\n\n1 | a")
    await house.store.put_question(other)
    assert await room.hear("ann", word) == (
        "Several questions wait; name one by its id:\n"
        f'- `{id}`: use `deed` with `{{"word": "a"}}`\n- `appr_other`: run these 2 lines'
    )
    assert deed.done == []
    assert await room.hear("ann", f"!yes {id}") == "Allowed: `deed`."
    assert await room.reply_to(first) == "Done."
    assert len(deed.done) == 1


# ── once, session, always ──


async def allow(room: Room, stage: Stage, word: str, who: str = "ann") -> str:
    """One call of `deed`, asked about and allowed with this word; its question's id."""
    stage.then(a_call(), DONE)
    first = await room.tell(who, "please")
    id = await room.question(len(room.questions) + 1)
    said = await room.hear(who, word.format(id=id))
    assert said.startswith("Allowed: `deed`.")
    await room.reply_to(first)
    return id


async def is_asked(room: Room, stage: Stage, who: str = "ann", **call: object) -> bool:
    """Whether the same call is asked about once more."""
    before = len(room.questions)
    stage.then(a_call(**call), DONE)  # type: ignore[arg-type]
    first = await room.tell(who, "again")
    await until(lambda: room.answer_to(first) or len(room.questions) > before)
    if room.answer_to(first) is not None:
        return False
    await room.hear(who, "!no")
    await room.reply_to(first)
    return True


async def test_once_is_once(room: Room, stage: Stage, deed: AskingTool) -> None:
    await allow(room, stage, "!yes")
    assert await is_asked(room, stage)
    assert len(deed.done) == 1


async def test_a_session_is_this_session(room: Room, stage: Stage, deed: AskingTool) -> None:
    await allow(room, stage, "!YES session")
    assert not await is_asked(room, stage)
    assert len(deed.done) == 2
    assert await is_asked(room, stage, word="b")
    assert await is_asked(room, stage, times=2)
    await room.hear("ann", "/new")
    assert await is_asked(room, stage)
    assert await is_asked(room, stage, "bob")
    assert len(deed.done) == 2


async def test_always_is_in_all_sessions_of_that_person(
    room: Room, stage: Stage, deed: AskingTool
) -> None:
    await allow(room, stage, "/approve always {id}")
    await room.hear("ann", "/new")
    assert not await is_asked(room, stage)
    assert len(deed.done) == 2
    assert await is_asked(room, stage, word="b")
    assert await is_asked(room, stage, "bob")
    assert len(deed.done) == 2


@pytest.mark.parametrize("word", ["!yes session", "!yes always"])
async def test_a_grant_survives_a_restart(
    house: House, room: Room, stage: Stage, deed: AskingTool, word: str
) -> None:
    await allow(room, stage, word)
    await house.crash()
    after = await house.open(agent=WITH_TOOL)
    assert isinstance(after, Room)
    assert not await is_asked(after, stage)
    assert len(deed.done) == 2


async def test_a_no_grants_nothing_whatever_else_is_said(
    room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call(), DONE)
    first = await room.tell("ann", "please")
    await room.question()
    assert await room.hear("ann", "!no always") == "Refused: `deed`."
    await room.reply_to(first)
    assert await is_asked(room, stage)
    assert deed.done == []


async def test_what_was_granted_is_listed_and_taken_back(
    room: Room, stage: Stage, deed: AskingTool
) -> None:
    assert await room.hear("ann", "/grants") == "You have allowed nothing beyond a single call."
    await allow(room, stage, "!yes")
    assert await room.hear("ann", "/grants") == "You have allowed nothing beyond a single call."
    await allow(room, stage, "!yes always")
    listed = await room.hear("ann", "/grants")
    assert 'use `deed` with `{"word": "a"}` (always, ' in listed
    number = listed.partition(":")[0].removeprefix("- ")
    assert await room.hear("bob", "/grants") == "You have allowed nothing beyond a single call."
    assert await room.hear("bob", f"/grants revoke {number}") == "There is none of that number."
    assert await room.hear("bob", "/grants revoke all") == "0 permissions taken back."
    assert not await is_asked(room, stage)
    assert (await room.hear("ann", "/grants revoke it")).startswith("Which one?")
    assert await room.hear("ann", f"/grants revoke {number}") == "Taken back."
    assert await is_asked(room, stage)
    await allow(room, stage, "!yes session")
    assert await room.hear("ann", "/grants revoke all") == "1 permission taken back."
    assert await is_asked(room, stage)


async def test_a_yes_to_a_harmless_call_is_none_to_the_same_call_without_its_bounds(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a grant of their own nobody gets what only an owner may allow."""
    now: list[Wanted] = [Wanted("tidy up")]
    deed = AskingTool(wanted=lambda arguments: now[0])
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    house.desk_type = Room
    room = await house.open(agent=WITH_TOOL)
    assert isinstance(room, Room)
    await allow(room, stage, "!yes always")
    assert not await is_asked(room, stage)
    now[0] = Wanted("tidy up", owner=True)
    stage.then(a_call(), DONE)
    await room.hear("ann", "again")
    assert house.words()[-1].startswith("Only an owner of this agent may allow this")
    now[0] = Wanted("tidy up with network")
    assert await is_asked(room, stage)
    assert len(deed.done) == 2


@pytest.mark.parametrize("word", ["!yes session", "!yes always", "/approve always {id}"])
async def test_a_yes_for_longer_to_what_is_asked_each_time_holds_once(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    deed = a_deed(monkeypatch, Wanted("tidy up", once="it depends"))
    house.desk_type = Room
    room = await house.open(agent=WITH_TOOL)
    assert isinstance(room, Room)
    stage.then(a_call(), DONE)
    first = await room.tell("ann", "please")
    id = await room.question()
    assert room.questions == [
        f"May I tidy up?\n\nIt is asked each time: it depends.\n\nAnswer `!yes` or `!no`. (`{id}`)"
    ]
    said = await room.hear("ann", word.format(id=id))
    assert said == "Allowed: `deed`. This once, and it is asked each time: it depends."
    await room.reply_to(first)
    assert len(deed.done) == 1
    assert await room.hear("ann", "/grants") == "You have allowed nothing beyond a single call."
    assert await is_asked(room, stage)
    assert len(deed.done) == 1


async def test_a_stored_grant_does_not_cover_what_is_asked_each_time(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that an earlier version stored, or that was given under other settings."""
    now: list[Wanted] = [Wanted("tidy up")]
    deed = AskingTool(wanted=lambda arguments: now[0])
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    house.desk_type = Room
    room = await house.open(agent=WITH_TOOL)
    assert isinstance(room, Room)
    await allow(room, stage, "!yes always")
    now[0] = Wanted("tidy up", once="it depends")
    assert await is_asked(room, stage)
    assert len(deed.done) == 1


@pytest.mark.parametrize(
    "changed", [Wanted("tidy up", binding="2"), Wanted("tidy up", reasons=("It read a page.",))]
)
async def test_a_grant_is_bound_to_what_the_call_rests_on(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch, changed: Wanted
) -> None:
    now: list[Wanted] = [Wanted("tidy up", binding="1")]
    deed = AskingTool(wanted=lambda arguments: now[0])
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    house.desk_type = Room
    room = await house.open(agent=WITH_TOOL)
    assert isinstance(room, Room)
    await allow(room, stage, "!yes always")
    assert not await is_asked(room, stage)
    now[0] = changed
    assert await is_asked(room, stage)
    assert len(deed.done) == 2


async def test_a_grant_for_several_lines_is_listed_as_it_was_shown(
    room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call("a\nb"), DONE)
    first = await room.tell("ann", "please")
    await room.question()
    await room.hear("ann", "!yes always")
    await room.reply_to(first)
    listed = await room.hear("ann", "/grants")
    number = listed.partition(":")[0].removeprefix("- ")
    assert listed.startswith(f"- {number}: use `deed` with these arguments (always, ")
    assert "\n\n```\nword, 2 lines:\n1 | a\n2 | b\n```\n" in listed


# ── whose word ──


async def test_in_a_shared_conversation_only_the_word_of_who_asked_counts(
    room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call(), DONE)
    first = await room.tell("ann", "please", at=in_thread)
    id = await room.question()
    for word in ("!yes", "!no", f"/approve always {id}", f"/deny {id}"):
        said = await room.hear("bob", word, at=in_thread)
        assert said == "That question is for whoever asked, and for owners."
    assert deed.done == []
    assert await room.hear("ann", "!yes", at=in_thread) == "Allowed: `deed`."
    assert await room.reply_to(first) == "Done."
    assert len(deed.done) == 1


async def test_what_one_allowed_another_does_not_get_in_the_same_conversation(
    room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call(), DONE, a_call(), DONE)
    first = await room.tell("ann", "please", at=in_thread)
    await room.question()
    await room.hear("ann", "!yes session", at=in_thread)
    await room.reply_to(first)
    await room.tell("bob", "me too", at=in_thread)
    await room.question(2)
    assert len(deed.done) == 1


async def test_who_speaks_beside_a_turn_does_not_get_what_its_person_allowed(
    room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call(), DONE)
    first = await room.tell("ann", "please", at=in_thread)
    await room.question()
    await room.hear("ann", "!yes always", at=in_thread)
    await room.reply_to(first)
    stage.then(a_call("b"), a_call(), DONE, a_call(), DONE)
    anns = await room.tell("ann", "and this", at=in_thread)
    await room.question(2)
    await room.tell("bob", "and that once more", at=in_thread)
    await room.hear("ann", "!no", at=in_thread)
    await room.reply_to(anns)
    await room.question(3)
    assert len(deed.done) == 2, "Ann's own call ran by her word, Bob's waits for his"


async def test_a_word_given_elsewhere_is_for_nothing_here(
    room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call(), DONE)
    await room.tell("ann", "please", at=in_thread)
    id = await room.question()
    for word in ("!yes", f"!yes {id}", f"!no {id}"):
        assert await room.hear("ann", word, at=direct) == NOTHING
    assert deed.done == []


async def test_a_word_in_one_profile_is_for_nothing_in_another(
    tmp_path_factory: pytest.TempPathFactory,
    model: ScriptedModel,
    stage: Stage,
    deed: AskingTool,
) -> None:
    family = Family(tmp_path_factory.mktemp("family"), model, "coder")
    for name in ("default", "coder"):
        family.configure(name, agent=WITH_TOOL)
        family.brings[name] = lambda: [Room()]
    await family.open()
    try:
        mine, other = family.desk("default"), family.desk("coder")
        assert isinstance(mine, Room) and isinstance(other, Room)
        stage.then(a_call(), DONE)
        first = await mine.tell("ann", "please")
        id = await mine.question()
        for word in ("!yes", f"!yes always {id}", f"!no {id}"):
            assert await other.hear("ann", word) == NOTHING
        assert deed.done == []
        assert await mine.hear("ann", f"!yes always {id}") != NOTHING
        assert await mine.reply_to(first) == "Done."
        assert await is_asked(other, stage)
    finally:
        await family.close()


# ── what was approved is what is run ──


class _Seen:
    """A tool that notes which object its arguments are, when it asks and when it runs."""

    def __init__(self) -> None:
        self.asked: list[AnyArguments] = []
        self.ran: list[AnyArguments] = []
        self.contents: list[object] = []
        self.tool = Tool("deed", "Does it.", AnyArguments, self._run, needs_approval=self._wanted)

    def _wanted(self, arguments: AnyArguments, context: ToolContext) -> Wanted:
        self.asked.append(arguments)
        return Wanted(f"do {arguments.model_extra}")

    async def _run(self, arguments: AnyArguments, context: ToolContext) -> str:
        self.ran.append(arguments)
        self.contents.append(arguments.model_dump())
        return "did it"


async def test_what_was_asked_about_is_the_very_thing_that_is_run(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _Seen()
    monkeypatch.setitem(TOOLS, "deed", seen.tool)
    house.desk_type = Room
    room = await house.open(agent=WITH_TOOL)
    assert isinstance(room, Room)
    stage.then(Reply(tool_calls=(("deed", {"how": {"deep": ["a"]}}),)), DONE)
    first = await room.tell("ann", "please")
    await room.question()
    [live] = room.shown(ApprovalAsked)
    live.call.arguments["how"]["deep"].append("b")
    live.call.arguments["more"] = "c"  # type: ignore[index]
    await room.hear("ann", "!yes")
    await room.reply_to(first)
    assert len(seen.asked) == len(seen.ran) == 1
    assert seen.ran[0] is seen.asked[0]
    assert seen.contents == [{"how": {"deep": ["a"]}}]
