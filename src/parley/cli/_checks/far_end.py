"""The remote agent that answers instead of a model: whether it is there and takes the key."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from parley.cli._checks.answering import unused_agents, who_answers
from parley.cli._checks.finding import Finding, fault, note, ok
from parley.cli._checks.settings import Ground

__all__ = ["check_far_end"]

_CHECK: Final = "remote agent"
_KEY: Final = "GATEWAY_PROXY_KEY"
_ANSWERS_WITHIN: Final = 5.0


async def check_far_end(ground: Ground, *, offline: bool) -> list[Finding]:
    """Unless `offline`, ask it for its models; nothing where no remote agent is named.

    One that is named and never asked is a note.
    """
    settings = ground.settings
    if settings is None:
        return []
    if "proxy" not in who_answers(settings):
        unused = unused_agents(settings).get("proxy")
        return [note(_CHECK, unused, "parley config set backend proxy")] if unused else []
    if settings.gateway.proxy_url is None:
        what = "it is to answer, but nobody is named."
        return [fault(_CHECK, what, "parley config set gateway.proxy_url http://HOST:8642")]
    from parley.backends.proxy.client import RemoteServer
    from parley.backends.proxy.faults import FarEnd, ProxyError

    key = ground.secret(_KEY)
    server = RemoteServer(settings.gateway.proxy_url, silence_seconds=_ANSWERS_WITHIN)
    far = FarEnd(server.shown, key)
    with_key = f", with {_KEY} from {_place()}" if key else ", without a key"
    if offline:
        return [ok(_CHECK, f"{far.name} is to answer{with_key}; not asked.")]
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN):
            status, body = await server.get("/v1/models", headers=headers, far=far)
    except ProxyError as error:
        return [fault(_CHECK, error.failed.sentence, "parley doctor")]
    except TimeoutError:
        what = f"{far.name} has not answered within {_ANSWERS_WITHIN:g} s."
        return [fault(_CHECK, what, "parley doctor")]
    finally:
        await server.close()
    if status in {401, 403}:
        sentence = far.status(status, {}, body).failed.sentence
        return [fault(_CHECK, sentence, _set_key())]
    # Not every server has a list of its models: that it answers is enough.
    if status >= 500 or 300 <= status < 400:
        sentence = far.status(status, {}, body).failed.sentence
        return [fault(_CHECK, sentence, "parley doctor")]
    return [ok(_CHECK, f"{far.name} answers{with_key}.")]


def _place() -> str:
    return "the environment" if os.environ.get(_KEY, "").strip() else ".env"


def _set_key() -> str:
    above = f"unset {_KEY} && " if os.environ.get(_KEY, "").strip() else ""
    return f"{above}parley config set {_KEY}"
