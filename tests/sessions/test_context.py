"""What a running turn may ask about itself, and only for as long as it runs."""

from __future__ import annotations

import asyncio

import pytest

from parley.sessions.context import (
    async_delivery_supported,
    clear_session_vars,
    get_session_env,
    set_session_vars,
)


def test_outside_a_turn_nothing_is_known_and_delivery_later_is_possible() -> None:
    assert async_delivery_supported() is True
    assert get_session_env("platform") == ""


@pytest.mark.parametrize("name", ["platform", "PARLEY_SESSION_PLATFORM", "HERMES_SESSION_PLATFORM"])
@pytest.mark.parametrize("later", [True, False])
def test_a_turn_knows_where_it_is_from_and_whether_it_may_answer_later(
    name: str, later: bool
) -> None:
    tokens = set_session_vars(platform="telegram", chat_id="123", async_delivery=later)
    try:
        assert async_delivery_supported() is later
        assert get_session_env(name) == "telegram"
        assert get_session_env("PARLEY_SESSION_CHAT_ID") == "123"
    finally:
        clear_session_vars(tokens)
    assert async_delivery_supported() is True
    assert get_session_env(name) == ""


def test_delivery_later_is_possible_when_nobody_says_otherwise() -> None:
    tokens = set_session_vars(platform="discord")
    try:
        assert async_delivery_supported() is True
    finally:
        clear_session_vars(tokens)


def test_a_missing_value_is_empty() -> None:
    tokens = set_session_vars(platform="telegram", thread_id=None)
    try:
        assert get_session_env("PARLEY_SESSION_THREAD_ID") == ""
        assert get_session_env("PARLEY_SESSION_NONSENSE") == ""
    finally:
        clear_session_vars(tokens)


def test_the_channel_of_one_turn_does_not_stick_to_its_session() -> None:
    over_http = set_session_vars(session_key="shared", async_delivery=False)
    assert async_delivery_supported() is False
    clear_session_vars(over_http)
    in_a_chat = set_session_vars(session_key="shared", async_delivery=True)
    assert async_delivery_supported() is True
    clear_session_vars(in_a_chat)


def test_a_turn_inside_a_turn_hides_the_outer_one_until_it_ends() -> None:
    outer = set_session_vars(platform="telegram", chat_id="1", async_delivery=False)
    inner = set_session_vars(platform="cron")
    assert get_session_env("platform") == "cron"
    assert get_session_env("chat_id") == ""
    assert async_delivery_supported() is True
    clear_session_vars(inner)
    assert get_session_env("platform") == "telegram"
    assert async_delivery_supported() is False
    clear_session_vars(outer)
    assert get_session_env("platform") == ""


async def test_turns_side_by_side_know_only_themselves() -> None:
    all_bound = asyncio.Barrier(20)

    async def turn(number: int) -> tuple[str, bool]:
        tokens = set_session_vars(chat_id=str(number), async_delivery=number % 2 == 0)
        try:
            await all_bound.wait()
            return get_session_env("chat_id"), async_delivery_supported()
        finally:
            clear_session_vars(tokens)

    seen = await asyncio.gather(*(turn(number) for number in range(20)))
    assert seen == [(str(number), number % 2 == 0) for number in range(20)]
    assert get_session_env("chat_id") == ""


async def test_the_tasks_and_threads_of_a_turn_know_it_too() -> None:
    tokens = set_session_vars(chat_id="7")
    try:

        async def ask() -> str:
            return get_session_env("chat_id")

        assert await asyncio.create_task(ask()) == "7"
        assert await asyncio.to_thread(get_session_env, "chat_id") == "7"
    finally:
        clear_session_vars(tokens)
