"""Who is told why something failed: whoever runs the agent, and the log. Everyone else is not."""

from __future__ import annotations

import logging

import pytest

from parley.gateway.failures import CANNOT, error_text, failure_for, is_operator
from parley.gateway.owners import Owners
from parley.protocol import Behalf, ChatMessage, Failed, ParleyError, Request, SessionSource
from parley.storage.contract import StoreUnavailable
from tests.gateway.house import House

OWNERS = Owners(["desk:ann"])
SECRETIVE = ("127.0.0.1", "parley ", "base_url", "API_KEY", "setting ", "scripted")
KINDS = ("unreachable", "auth", "refused", "internal", "timeout", "overloaded", "rate_limited")


@pytest.mark.parametrize("kind", [*KINDS, "too_long", "broken", "budget", "limit"])
def test_a_guest_reads_one_short_sentence_of_each_kind(kind: str) -> None:
    cause = "Nothing answers at http://127.0.0.1:19999/v1: start it, or run `parley setup`."
    failed = Failed(cause, cause="raw", kind=kind)
    told = failure_for(failed, operator=False).sentence
    assert not any(word in told for word in SECRETIVE)
    assert len(told) < 100
    assert told.endswith(".")
    assert failure_for(failed, operator=True) is failed


def test_what_is_meant_for_people_is_told_as_it_is() -> None:
    plan = Failed("Your plan is used up.", kind="budget", public="Your plan is used up.")
    assert failure_for(plan, operator=False).sentence == "Your plan is used up."
    wait = Failed("x", kind="rate_limited", retry_after=12.0)
    assert "in 12 s" in failure_for(wait, operator=False).sentence
    refused = Failed("http://x refused", kind="refused", detail="schema is wrong")
    assert "schema is wrong" in failure_for(refused, operator=False, program=True).sentence
    assert failure_for(refused, operator=False).sentence == CANNOT


def test_an_owner_reads_the_cause_where_nobody_else_reads_along() -> None:
    def at(user: str, chat_type: str = "dm", platform: str = "desk") -> SessionSource:
        return SessionSource(platform, "c", chat_type=chat_type, user_id=user)

    def asked(**more: object) -> Request:
        return Request("r", (ChatMessage("user", "x"),), **more)  # type: ignore[arg-type]

    assert is_operator(OWNERS, at("ann"))
    assert is_operator(OWNERS, at("owner", platform="terminal"))
    assert not is_operator(OWNERS, at("bob"))
    assert not is_operator(OWNERS, at("ann", "group"))
    assert is_operator(OWNERS, at("key", platform="api"), asked(operator=True))
    assert not is_operator(OWNERS, at("key", platform="api"), asked())
    assert is_operator(OWNERS, at("x", platform="task"), asked(behalf=Behalf("desk:ann", "s", "d")))
    bob = asked(behalf=Behalf("desk:bob", "s", "desk"))
    assert not is_operator(OWNERS, at("x", platform="task"), bob)
    assert Request.from_dict(asked(operator=True).to_dict()).operator


def test_an_error_outside_of_a_turn_is_told_the_same_way() -> None:
    full = StoreUnavailable("The database /home/me/.parley/parley.db cannot be written.")
    assert "/home" not in error_text(full, operator=False)
    assert error_text(full, operator=True) == str(full)
    assert error_text(ParleyError("There is no fact 12."), operator=False) == "There is no fact 12."


async def test_a_model_that_refuses_the_key_is_explained_to_its_owner_and_to_the_log_alone(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    desk = await house.open()
    with caplog.at_level(logging.WARNING, "parley.turns"):
        assert await desk.ask("[[status 401]]") == CANNOT
    [record] = [each for each in caplog.records if each.message == "turn_failed"]
    assert "scripted" in getattr(record, "sentence", "")
    assert (await house.said())[-1] == ("assistant", CANNOT)
    await house.close()
    desk = await house.open(access={"owners": ["desk:ann"]})
    assert "scripted" in await desk.ask("[[status 401]]", chat="two")


async def test_commands_tell_a_guest_nothing_of_how_it_is_set_up(house: House) -> None:
    desk = await house.open(model={"provider": "openai"})
    for said in ("hello", "/status", "/model", "/model openai", "/model nosuch"):
        assert "API_KEY" not in await desk.ask(said)
