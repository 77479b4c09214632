"""`parley chat`: talk to your agent in the terminal, or ask it one thing."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, NoReturn

from parley.cli._shared import current_profile, fail, print_json
from parley.protocol import ParleyError

if TYPE_CHECKING:
    import typer

__all__ = ["register"]

_MAIN_CHAT = "main"


def register(parent: typer.Typer) -> None:
    import typer

    @parent.command()
    def chat(
        message: str | None = typer.Option(None, "--message", "-m", help="Ask this one thing."),
        name: str | None = typer.Option(None, "--chat", "-c", help="A conversation of its own."),
        go_on: bool = typer.Option(
            False, "--continue", help="With -m or piped input: go on in the main conversation."
        ),
        as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
    ) -> None:
        """Talk to your agent. The conversation goes on where it was left.

        With -m, or with input from a pipe, it answers once and ends; such a question is a
        conversation of its own unless --chat or --continue is given.
        """
        if name is not None and not name.strip():
            _refuse("A conversation needs a name: parley chat --chat NAME", as_json)
        if message is None and _is_terminal() and not as_json:
            _open_screen(name or _MAIN_CHAT)
        else:
            _ask_once(message, name or (_MAIN_CHAT if go_on else None), as_json=as_json)


def _is_terminal() -> bool:
    # Started with a closed stdin, as `<&-` does, Python has none at all.
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _piped() -> str:
    return "" if sys.stdin is None else sys.stdin.buffer.read().decode(errors="replace")


def _ask_once(message: str | None, chat: str | None, *, as_json: bool) -> None:
    """Without a `chat` the question is a conversation of its own, which nobody opens again."""
    import uuid

    from parley.cli._chat_once import ask_once
    from parley.cli._model_fetch import offer_missing_model
    from parley.config import load_settings

    text = message if message is not None else _piped()
    # A newline at the end is the pipe's, not the person's; small models stumble over it.
    text = text.strip()
    if not text:
        _refuse('There is nothing to ask; try: parley chat -m "hello"', as_json)
    try:
        profile = current_profile()
        settings = offer_missing_model(profile, load_settings(profile), fetch_unasked=True)
        code = asyncio.run(
            ask_once(
                profile,
                settings,
                chat=chat or f"once-{uuid.uuid4().hex[:12]}",
                text=text,
                as_json=as_json,
                once=chat is None,
            )
        )
    except ParleyError as error:
        _refuse(str(error), as_json)
    raise SystemExit(code)


def _refuse(sentence: str, as_json: bool) -> NoReturn:
    if not as_json:
        fail(sentence)
    print_json({"error": sentence})
    raise SystemExit(1)


def _open_screen(chat: str) -> None:
    from parley.cli._early_keys import early_keys

    _offer_model()
    with early_keys() as typed:  # before what takes long to import
        from parley.cli._chat_screen import Screen
        from parley.config import load_settings

        profile = current_profile()
        asyncio.run(Screen(profile, load_settings(profile), chat=chat).run(typed))


def _offer_model() -> None:
    """On the first start: a question, which needs the terminal as it is."""
    from parley.agent.providers.local.weights import has_any_model

    if not has_any_model():
        from parley.cli._model_fetch import offer_missing_model
        from parley.config import load_settings

        profile = current_profile()
        offer_missing_model(profile, load_settings(profile), fetch_unasked=True)
