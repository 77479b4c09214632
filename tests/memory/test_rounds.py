"""What is made of a conversation: facts with receipts, a summary, or a note that there is none."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest

from parley.agent.providers.base import ModelEvent, ModelReply, ModelRequest, ProviderError
from parley.agent.tokens import estimate_tokens
from parley.memory.asking import tokens_of
from parley.memory.cutting import Budget
from parley.protocol import ChatMessage, TextDelta, ToolCall, Usage
from parley.storage.hands import Limit, Payer
from parley.storage.memory import Edit, NewFact
from tests.builders import a_message
from tests.memory.scene import SYSTEM, TOOLS, Model, Scene, an_answer, place, task_of
from tests.storage.conformance.base import claim_one

_DOWN = ProviderError("The model cannot be reached.", kind="unreachable")
_REFUSED = ProviderError("The model does not like this.", kind="refused")
_TOLD = "I have a sister called Ida who lives in Graz."


def _window(request: ModelRequest, window: int) -> bool:
    return tokens_of(request, estimate_tokens) <= window - Budget.of(window).reply


# ── learning ──


async def test_facts_are_taken_with_their_receipts(scene: Scene) -> None:
    session = await scene.talk(_TOLD)
    await scene.consolidator().tend(session)
    [fact] = await scene.facts()
    assert fact.text == f"They said that {_TOLD}"
    assert (fact.kind, fact.origin, fact.person) == ("person", "learned", "test:user-of-c1")
    [line] = await scene.store.sources_of(fact.id)
    assert line.message.text == _TOLD
    [commit] = scene.commits
    assert (commit.kind, commit.by, commit.place) == ("learned", "scripted-1", place())
    assert (await scene.session()).seen.learned == session.last
    assert await scene.store.untended(2e9) == []


async def test_the_request_is_the_conversations_own_with_one_message_more(scene: Scene) -> None:
    await scene.talk(_TOLD)
    await scene.use_a_tool("I want to know what she likes.")
    session = await scene.talk("I am glad.")
    own = scene.asked_in_a_turn(await scene.history(), "what is said next")
    await scene.consolidator().tend(session)
    [asked] = scene.model.requests
    assert (asked.system, asked.tools, asked.wishes) == (own.system, own.tools, own.wishes)
    assert asked.messages[:-1] == own.messages[:-1]
    assert asked.messages[-1].role == "user"


async def test_of_several_in_one_direct_chat_nobody_is_told_of_another(scene: Scene) -> None:
    for user, text in (("ann", _TOLD), ("bob", "I like tea, and there is not much more to say.")):
        message = a_message(text)
        source = replace(message.source, user_id=user)
        await scene.store.submit("c1", user, replace(message, source=source))
        await scene.end(await claim_one(scene.store), ChatMessage("assistant", "I see."))
    await scene.consolidator().tend(await scene.session())
    places = ["person:test:ann", "person:test:bob"]
    facts = await scene.store.facts(places)
    assert [(fact.place, fact.person) for fact in facts] == [("person:test:bob", "test:bob")]


async def test_what_was_learned_is_not_asked_about_again(scene: Scene) -> None:
    consolidator = scene.consolidator()
    await consolidator.tend(await scene.talk(_TOLD))
    await consolidator.tend(await scene.talk("I will visit her in the spring of next year."))
    own = scene.asked_in_a_turn(await scene.history(), "what is said next")
    assert scene.model.requests[1].messages[:-1] == own.messages[:-1]
    first, second = map(task_of, scene.model.requests)
    assert "Ida" in first
    index = second.partition("Messages that facts may come from")[2]
    assert "Ida" not in index
    assert "spring" in index
    assert "Ida" in second  # as a fact that is known
    assert len(await scene.texts()) == 2


async def test_corrections_name_what_they_replace(scene: Scene) -> None:
    consolidator = scene.consolidator()
    await consolidator.tend(await scene.talk(_TOLD))
    [old] = await scene.facts()

    def correct(request: ModelRequest) -> str:
        assert f"- {old.id} (person): {old.text}" in task_of(request)
        fact = {"text": "Their sister Ida lives in Linz.", "replaces": [old.id]}
        return json.dumps({"facts": [fact]})

    scene.model.script = (correct,)
    await consolidator.tend(await scene.talk("I was wrong, Ida has moved to Linz by now."))
    assert await scene.texts() == ["Their sister Ida lives in Linz."]


async def test_what_they_take_back_is_forgotten(scene: Scene) -> None:
    consolidator = scene.consolidator()
    await consolidator.tend(await scene.talk(_TOLD))
    [old] = await scene.facts()
    scene.model.script = (json.dumps({"facts": [], "forget": [old.id]}),)
    await consolidator.tend(await scene.talk("Please forget what I said of my sister, will you?"))
    assert await scene.store.facts([place()], states=("current", "replaced", "removed")) == []


async def test_a_few_words_are_not_worth_a_question(scene: Scene) -> None:
    session = await scene.talk("I agree.", reply="a long reply " * 30)
    consolidator = scene.consolidator()
    assert await consolidator.tick() == 1
    assert scene.model.requests == []
    assert (await scene.session()).seen.learned == session.seen.learned
    assert await scene.store.untended(2e9) == []
    await scene.talk("I have changed my mind about it.")
    assert await consolidator.tick() == 1
    assert "I agree." in task_of(scene.model.requests[0])


async def test_three_times_nonsense_is_enough(scene: Scene) -> None:
    calls = ModelReply("", Usage("scripted", "m", 5, 5), (ToolCall("1", "look"),))
    scene.model.script = ("What a nice story!", "", calls, an_answer)
    session = await scene.talk(_TOLD)
    await scene.consolidator().tend(session)
    assert len(scene.model.requests) == 3
    [commit] = scene.commits
    assert (commit.kind, commit.folded) == ("archived", None)
    assert await scene.texts() == []
    assert (await scene.session()).seen.learned == session.last


async def test_a_second_try_is_as_good_as_the_first_and_all_are_counted(scene: Scene) -> None:
    scene.model.script = ("What a nice story!", _DOWN, an_answer)
    session = await scene.talk(_TOLD)
    before = await scene.store.session_of("c1")
    await scene.consolidator(
        priced=lambda usage: Usage(usage.provider, usage.model, 70, 7, micros=3)
    ).tend(session)
    assert len(await scene.texts()) == 1
    after = await scene.store.session_of("c1")
    assert before is not None and after is not None
    assert after.input_tokens - before.input_tokens == 140
    assert after.output_tokens - before.output_tokens == 14


async def test_a_provider_that_fails_is_asked_again_later(scene: Scene) -> None:
    scene.model.script = (_DOWN, _DOWN, _DOWN, an_answer)
    session = await scene.talk(_TOLD)
    consolidator = scene.consolidator()
    await consolidator.tend(session)
    assert len(scene.model.requests) == 3
    assert scene.commits == []
    assert (await scene.session()).seen.learned == session.seen.learned
    assert consolidator.status.failing == 1
    await consolidator.tend(session)
    assert consolidator.status.failing == 0
    assert len(await scene.texts()) == 1


async def test_calls_that_nothing_came_of_are_counted_too(scene: Scene) -> None:
    scene.model.script = ("nonsense", _DOWN)
    session = await scene.talk(_TOLD)
    await scene.consolidator().tend(session)
    assert len(scene.model.requests) == 3
    limit = Limit("session", "month", 0.0, 9e9, tokens=1)
    [spent] = await scene.store.spent(Payer("", session.id), [limit])
    assert spent.tokens == 110


async def test_where_nothing_is_remembered_nobody_is_asked(scene: Scene) -> None:
    scene.place = lambda session: ""
    await scene.consolidator().tend(await scene.talk(_TOLD))
    assert scene.model.requests == []
    assert await scene.store.untended(2e9) == []


async def test_learning_can_be_off(scene: Scene) -> None:
    await scene.consolidator(learn=False).tend(await scene.talk(_TOLD))
    assert scene.model.requests == []


async def test_a_budget_that_is_used_up_says_not_now(scene: Scene) -> None:
    asked: list[int] = []

    async def may_spend(session: object, provider: object, tokens: int) -> str | None:
        asked.append(tokens)
        return "The budget is used up."

    consolidator = scene.consolidator(may_spend=may_spend)
    session = await scene.talk(_TOLD)
    await consolidator.tend(session)
    assert scene.model.requests == []
    assert asked[0] > 300
    assert consolidator.status.last_fault == "The budget is used up."
    assert (await scene.session()).seen.learned == session.seen.learned


# ── folding ──


async def test_a_long_conversation_is_folded_to_half(scene: Scene) -> None:
    session = await scene.long_talk(20, facts=3)
    whole = await scene.history(whole=True)
    await scene.consolidator().tend(session)
    folded = await scene.session()
    assert folded.summary == f"- They talked, {len(scene.model.requests[0].messages) - 1} messages."
    assert folded.window_start == folded.seen.folded > session.window_start
    kept = await scene.history()
    assert whole[-len(kept) :] == kept
    assert kept[0].role == "user"
    size = sum(estimate_tokens(message.size) for message in kept)
    assert size <= Budget.of(8_000).tokens / 2
    assert await scene.history(whole=True) == whole
    assert len(await scene.texts()) == 3
    first, last = scene.commits[0], scene.commits[-1]
    assert first.kind == "folded"
    assert last.folded in (None, first.folded)
    assert scene.model.requests[0].messages[:-1] == tuple(whole[: -len(kept)])


async def test_it_comes_down_to_half_where_that_takes_several_requests(scene: Scene) -> None:
    session = await scene.long_talk(40)
    consolidator = scene.consolidator()
    await consolidator.maybe_consolidate_by_tokens_async(session)
    assert len(scene.model.requests) > 1
    assert {commit.kind for commit in scene.commits} == {"folded"}
    size = sum(estimate_tokens(message.size) for message in await scene.history())
    assert size <= Budget.of(8_000).tokens / 2
    assert await consolidator.maybe_consolidate_by_tokens_async(session) is None


async def test_a_conversation_under_its_budget_is_left_whole(scene: Scene) -> None:
    session = await scene.long_talk(5)
    consolidator = scene.consolidator()
    assert await consolidator.maybe_consolidate_by_tokens_async(session) is None
    assert scene.model.requests == []
    assert (await scene.session()).seen == session.seen


async def test_compacting_folds_all_but_the_newest_turns(scene: Scene) -> None:
    session = await scene.long_talk(6)
    consolidator = scene.consolidator()
    commit = await consolidator.maybe_consolidate_by_tokens_async(session.id, least=True)
    assert commit is not None
    assert commit.kind == "folded"
    assert len(await scene.history()) == 4
    assert await consolidator.compact(session.id) is None


@pytest.mark.parametrize(
    "script",
    [("no", "no", "no"), (_REFUSED, _REFUSED, _REFUSED), ('{"facts": []}',), ("no", _REFUSED, "")],
    ids=["nonsense", "refused", "no-summary", "mixed"],
)
async def test_after_three_failures_the_part_is_put_away_and_facts_are_taken_later(
    scene: Scene, script: tuple[str | Exception, ...]
) -> None:
    scene.model.script = (*script, *script[-1:] * (3 - len(script)), an_answer)
    session = await scene.long_talk(20, facts=2)
    whole = await scene.history(whole=True)
    commit = await scene.consolidator().maybe_consolidate_by_tokens_async(session)
    assert commit is not None
    assert commit.kind == "archived"
    assert ("it said: " in commit.note) is any(isinstance(each, str) and each for each in script)
    assert len(set(map(task_of, scene.model.requests))) == len(scene.model.requests) or (
        any(isinstance(each, Exception) for each in script)  # then the very same may be asked
    )
    put_away = await scene.session()
    assert put_away.window_start == put_away.seen.folded > 0
    assert put_away.seen.learned == session.seen.learned
    assert "put away unsummarised; `session_search` finds them." in put_away.summary
    assert await scene.history(whole=True) == whole
    await scene.consolidator().tend(session)
    assert len(await scene.texts()) == 2


async def test_a_model_that_is_too_small_is_never_asked(scene: Scene) -> None:
    scene.learns = False
    session = await scene.long_talk(20, facts=2)
    await scene.consolidator().tend(session)
    assert scene.model.requests == []
    assert [commit.kind for commit in scene.commits] == ["archived"]
    assert (await scene.session()).seen.learned == 0
    await scene.long_talk(22, topic="song")
    await scene.consolidator().tend(session)
    assert (await scene.session()).summary.count("\n") == 0


async def test_what_was_cut_in_a_hurry_is_summarised_and_learned_from(scene: Scene) -> None:
    session = await scene.long_talk(4, facts=4)
    entries = await scene.store.transcript(session.id)
    await scene.store.move_window(session.id, entries[4].id)
    await scene.consolidator().tend(session)
    folded = await scene.session()
    assert folded.summary == "- They talked, 4 messages."
    assert folded.seen.folded == folded.window_start == entries[4].id
    assert len(await scene.texts()) == 4
    gap = tuple(entry.message for entry in entries[:4])
    assert scene.model.requests[0].messages[:-1] == gap


async def test_no_request_is_larger_than_the_window(scene: Scene) -> None:
    """A conversation of many windows, a turn larger than one, and a fact in each part."""
    scene.model.context_window = 3_000
    await scene.long_talk(12, words=200, facts=12)
    await scene.use_a_tool("I let you read a very long book.", result="page " * 20_000)
    session = await scene.long_talk(12, words=200, facts=12, topic="song")
    await scene.consolidator().tend(session)
    assert len(scene.model.requests) > 3
    assert all(_window(request, 3_000) for request in scene.model.requests)
    assert all(commit.kind == "folded" for commit in scene.commits[:-1])
    assert len(await scene.texts()) == 25
    folded = await scene.session()
    size = sum(estimate_tokens(message.size) for message in await scene.history())
    assert folded.window_start == folded.seen.folded
    assert size <= Budget.of(3_000).tokens


async def test_a_window_in_which_nothing_fits_puts_it_away(scene: Scene) -> None:
    scene.model.context_window = 400
    session = await scene.long_talk(6)
    await scene.consolidator().maybe_consolidate_by_tokens_async(session)
    assert scene.model.requests == []
    assert scene.commits[-1].kind == "archived"


async def test_a_server_whose_window_is_smaller_is_asked_with_less(scene: Scene) -> None:
    too_long = ProviderError("It is too long.", kind="too_long")
    scene.model.script = (too_long, an_answer)
    session = await scene.long_talk(25)
    await scene.consolidator().maybe_consolidate_by_tokens_async(session)
    first, second, *_ = (tokens_of(each, estimate_tokens) for each in scene.model.requests)
    assert second <= 3_000 < first
    assert scene.commits[0].kind == "folded"


async def test_the_estimate_is_what_the_budget_is_measured_by(scene: Scene) -> None:
    session = await scene.long_talk(12)
    assert await scene.consolidator().maybe_consolidate_by_tokens_async(session) is None
    twice = scene.consolidator(estimate=lambda provider, size: 2 * estimate_tokens(size))
    assert await twice.maybe_consolidate_by_tokens_async(session) is not None


async def test_a_summary_that_the_prompt_does_not_hold_is_in_the_task(scene: Scene) -> None:
    consolidator = scene.consolidator()
    session = await scene.long_talk(25)
    await consolidator.maybe_consolidate_by_tokens_async(session)
    await scene.long_talk(22, topic="song")
    await consolidator.maybe_consolidate_by_tokens_async(session)
    first, *_, last = scene.model.requests
    assert "Earlier:\n- They talked, " in last.system
    assert "- They talked, " not in task_of(last)
    assert task_of(first).count("\n- ") < 60


async def test_a_fact_that_the_agent_added_meanwhile_is_one_with_it(scene: Scene) -> None:
    session = await scene.talk(_TOLD)
    known = NewFact(f"They said that {_TOLD}", sources=())
    await scene.store.remember(place(), Edit(adds=(known,)), by="owner", origin="tool")
    await scene.consolidator().tend(session)
    [fact] = await scene.facts()
    assert len(fact.sources) == 1


async def test_the_defaults_are_for_prompts_that_bring_nothing(scene: Scene) -> None:
    await scene.consolidator().tend(await scene.talk(_TOLD))
    [request] = scene.model.requests
    assert (request.system, request.tools) == (SYSTEM, TOOLS)
    scene.model.offers_tools = False
    await scene.consolidator().tend(await scene.talk("I play chess with her every Sunday, mostly."))
    assert scene.model.requests[-1].tools == ()


async def test_a_reply_that_never_ends_is_broken_off(scene: Scene) -> None:
    class Endless(Model):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            self.requests.append(request)
            while True:
                yield TextDelta("on and on " * 1_000)

    scene.model = Endless()
    await scene.consolidator().tend(await scene.talk(_TOLD))
    assert len(scene.model.requests) == 3
    assert [commit.kind for commit in scene.commits] == ["archived"]


async def test_undone_and_unfinished_turns_are_left_out(scene: Scene) -> None:
    await scene.talk(_TOLD)
    session = await scene.session()
    claim = await scene.begin("I am in the middle of something.")
    task = partial(scene.consolidator().tend, session)
    await task()
    assert scene.commits == []
    await scene.end(claim, ChatMessage("assistant", "Done."))
    await task()
    assert len(await scene.texts()) == 2


async def test_what_was_forgotten_is_in_no_summary_that_is_made_later(scene: Scene) -> None:
    def answer(request: ModelRequest) -> str:
        told = json.loads(an_answer(request))
        if "summary" in told:
            told["summary"] = "- They like green tea a great deal.\n- They talked."
        return json.dumps(told)

    scene.model.script = (answer,)
    await scene.talk("I like green tea a great deal", "And now?", "And then?", "Well then.")
    consolidator = scene.consolidator()
    await consolidator.tick()
    [fact] = await scene.facts()
    await scene.store.forget([fact.id], by="test")
    await consolidator.compact(await scene.session())
    assert (await scene.session()).summary == "- They talked."
    assert not any("tea" in each.text for each in scene.model.requests[-1].messages)


@pytest.mark.parametrize(
    "error",
    [_DOWN, ProviderError("There is no such model.", kind="refused", status=404)],
    ids=["unreachable", "no-such-model"],
)
async def test_without_a_model_the_prompt_is_cut_and_the_summary_is_made_later(
    scene: Scene, error: ProviderError
) -> None:
    scene.model.script = (*[error] * 6, an_answer)
    session = await scene.long_talk(20, facts=2)
    consolidator = scene.consolidator()
    await consolidator.tend(session)
    [commit] = scene.commits
    assert commit.kind == "archived" and str(error) in commit.note
    cut = await scene.session()
    assert cut.window_start > session.window_start
    assert (cut.seen.folded, cut.seen.learned) == (session.seen.folded, session.seen.learned)
    assert consolidator.status.failing == 1
    await consolidator.tend(session)
    assert [each.kind for each in scene.commits][1:2] == ["folded"]
    assert consolidator.status.failing == 0
    folded = await scene.session()
    assert folded.seen.folded == folded.window_start >= cut.window_start
    assert folded.summary and "unsummarised" not in folded.summary
    assert len(await scene.texts()) == 2


async def test_what_was_asked_for_is_not_cut_when_there_is_no_model(scene: Scene) -> None:
    scene.model.script = (_DOWN,)
    session = await scene.talk("I like tea.", "I like cake.", "I like rain.", "I like snow.")
    with pytest.raises(ProviderError):
        await scene.consolidator().compact(session)
    assert (await scene.session()).window_start == session.window_start


async def test_a_question_and_its_answer_fit_the_window_together(scene: Scene) -> None:
    session = await scene.long_talk(40)
    await scene.consolidator().tend(session)
    for request in scene.model.requests:
        assert request.max_output_tokens is not None
        asked = tokens_of(request, estimate_tokens)
        assert asked + request.max_output_tokens <= scene.model.context_window


async def test_a_small_model_is_asked_in_short_requests_of_their_own(scene: Scene) -> None:
    scene.lean = True

    def answer(request: ModelRequest) -> str:
        if request.system.startswith("You check"):
            return '{"answer": "yes"}'
        if request.system.startswith("You summarize"):
            return '{"summary": "- They talked about many things."}'
        return '{"facts": [{"text": "They have a sister named Ida.", "source": 1}]}'

    scene.model.script = (answer,)
    session = await scene.talk("I have a sister named Ida.")
    await scene.consolidator().tend(session)
    assert await scene.texts() == ["They have a sister named Ida."]
    assert all(request.tools == () for request in scene.model.requests)
    assert all(request.wishes.response_format for request in scene.model.requests)


async def test_a_small_models_retries_differ_and_what_it_said_is_logged(scene: Scene) -> None:
    scene.lean = True
    scene.model.script = ("Sure, here you are!",)
    session = await scene.talk("I have a sister named Ida.")
    await scene.consolidator().tend(session)
    (commit,) = scene.commits
    assert commit.kind == "archived"
    assert commit.note.endswith("it said: Sure, here you are!")
    asked = [task_of(request) for request in scene.model.requests]
    assert len(asked) == 3
    assert len(set(asked)) == 3


async def test_after_an_answer_of_no_use_the_model_is_held_to_a_schema(scene: Scene) -> None:
    scene.model.script = ("no", an_answer)
    session = await scene.talk("I have a sister named Ida.")
    await scene.consolidator().tend(session)
    assert await scene.texts() != []
    first, second = scene.model.requests
    assert first.wishes.response_format is None  # its beginning is in the provider's cache
    assert second.wishes.response_format is not None
    assert "could not be used" in task_of(second)


async def test_a_server_that_refuses_a_schema_is_asked_without_one(scene: Scene) -> None:
    scene.alone = True
    scene.model.script = (_REFUSED, an_answer)
    session = await scene.talk("I have a sister named Ida.")
    await scene.consolidator().tend(session)
    assert await scene.texts() != []
    held = [request.wishes.response_format is not None for request in scene.model.requests]
    assert held == [True, False]


async def test_a_small_model_folds_first_and_learns_afterwards(scene: Scene) -> None:
    scene.lean = True

    def answer(request: ModelRequest) -> str:
        if request.system.startswith("You summarize"):
            return '{"summary": "- They talked about many things."}'
        return '{"facts": []}'

    scene.model.script = (answer,)
    session = await scene.long_talk(20, facts=2)
    commit = await scene.consolidator().maybe_consolidate_by_tokens_async(session)
    assert commit is not None
    assert commit.kind == "folded"
    folded = await scene.session()
    assert folded.summary == "- They talked about many things."
    assert folded.seen.learned == session.seen.learned
