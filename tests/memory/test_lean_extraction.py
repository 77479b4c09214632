"""Facts and summaries from a small model: short questions, and nothing taken on trust."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from parley.agent.providers.base import ModelReply, ModelRequest
from parley.memory.answer import Answer, Nonsense
from parley.memory.asking import Task
from parley.memory.lean_extraction import LeanExtraction
from parley.protocol import Usage
from tests.memory.facts import a_fact
from tests.memory.scene import a_line

USAGE = Usage("scripted", "small")


class Small:
    """A small model by script: `facts` for the extraction, yes or no for the checks."""

    def __init__(
        self, *facts: tuple[str, int], checks: Callable[[str], bool] = lambda question: True
    ) -> None:
        self._facts = [{"text": text, "source": source} for text, source in facts]
        self._checks = checks
        self.requests: list[ModelRequest] = []

    async def ask(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        if request.system.startswith("You check"):
            said = "yes" if self._checks(request.messages[-1].text) else "no"
            return ModelReply(json.dumps({"answer": said}), USAGE)
        return ModelReply(json.dumps({"facts": self._facts}), USAGE)


def task(*said: str, known: tuple[str, ...] = ()) -> Task:
    facts = tuple(
        replace(a_fact(n, text), person="test:ann") for n, text in enumerate(known, start=1)
    )
    return Task(said=tuple(a_line(40 + n, n, text) for n, text in enumerate(said)), known=facts)


async def learned(model: Small, asked: Task) -> Answer:
    found = await LeanExtraction(model.ask).facts(asked)
    assert isinstance(found, Answer)
    return found


async def test_a_request_has_no_tools_and_is_held_to_its_form() -> None:
    model = Small(("The person lives in Oslo.", 1))
    found = await learned(model, task("I live in Oslo.", "I like tea."))
    assert [(fact.text, fact.sources) for fact in found.facts] == [
        ("The person lives in Oslo.", (40,))
    ]
    first = model.requests[0]
    assert first.tools == ()
    assert first.messages[-1].text == "1: I live in Oslo.\n2: I like tea."
    assert first.wishes.response_format is not None
    assert first.wishes.response_format["type"] == "json_schema"
    assert len(first.system) < 1_000


async def test_a_fact_that_its_message_does_not_speak_of_is_left_out() -> None:
    model = Small(("The Nile is long.", 1), ("Ann has 3 cats named Tom.", 1))
    assert (await learned(model, task("I have cats."))).facts == ()


async def test_questions_tell_nothing() -> None:
    model = Small(("Everest is the tallest mountain.", 1))
    assert (await learned(model, task("What is the tallest mountain?"))).facts == ()
    assert model.requests == []


async def test_a_second_question_must_be_answered_with_yes() -> None:
    model = Small(
        ("The person has cats.", 1),
        ("Cats are animals.", 1),
        checks=lambda question: "Note: “Cats" not in question,
    )
    found = await learned(model, task("I have cats, which are animals."))
    assert [fact.text for fact in found.facts] == ["The person has cats."]


async def test_a_newer_fact_takes_the_place_of_an_older_one() -> None:
    model = Small(("The person moved from Bergen to Oslo.", 1))
    asked = task("I moved from Bergen to Oslo.", known=("Lives in Bergen.", "Likes tea."))
    (fact,) = (await learned(model, asked)).facts
    assert fact.replaces == (1,)


async def test_a_fact_of_something_else_stays_whatever_the_model_says() -> None:
    model = Small(("The person's favourite band is Radiohead.", 1))
    known = ("The person does not eat meat.", "The person's brother plays in a band in Leeds.")
    (fact,) = (await learned(model, task("My favourite band is Radiohead.", known=known))).facts
    assert fact.replaces == ()


async def test_what_is_to_be_forgotten_is_forgotten_and_not_learned_again() -> None:
    model = Small(("The person's favourite band is Radiohead.", 1))
    asked = task(
        "Please forget that my favourite band is Radiohead.",
        known=("Their favourite band is Radiohead.", "Likes tea."),
    )
    found = await learned(model, asked)
    assert (found.facts, found.forgets) == ((), (1,))


async def test_an_answer_of_no_use_is_nonsense_and_the_next_question_says_so() -> None:
    requests: list[ModelRequest] = []

    async def ask(request: ModelRequest) -> ModelReply:
        requests.append(request)
        return ModelReply("Sure!", USAGE)

    asks = LeanExtraction(ask)
    found = await asks.facts(task("I live in Oslo."))
    assert isinstance(found, Nonsense)
    await asks.facts(task("I live in Oslo."), wrong=found.reason)
    assert requests[0] != requests[1]
    assert found.reason in requests[1].messages[-1].text
