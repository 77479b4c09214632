"""The agent that answers over a WebSocket: whether it is there and takes the key."""

from __future__ import annotations

import os
from typing import Final

from parley.cli._checks.answering import unused_agents, who_answers
from parley.cli._checks.finding import Finding, fault, note, ok
from parley.cli._checks.settings import Ground

__all__ = ["check_direct_agent"]

_CHECK: Final = "direct agent"
_KEY: Final = "AGENT_WS_KEY"
_ANSWERS_WITHIN: Final = 5.0


async def check_direct_agent(ground: Ground, *, offline: bool) -> list[Finding]:
    """Unless `offline`, be greeted by it; nothing where no direct agent is named.

    One that is named and never asked is a note.
    """
    settings = ground.settings
    if settings is None:
        return []
    if "direct" not in who_answers(settings):
        unused = unused_agents(settings).get("direct")
        return [note(_CHECK, unused, "parley config set backend direct")] if unused else []
    if settings.direct.url is None:
        what = "it is to answer, but nobody is named."
        return [fault(_CHECK, what, "parley config set direct.url ws://HOST:8642/agent_ws/")]
    from parley.backends.direct.dial import AgentSessionConfig, Dialer
    from parley.backends.direct.faults import PlatformError

    dialer = Dialer(AgentSessionConfig(settings.direct.url, timeout_seconds=_ANSWERS_WITHIN))
    key = ground.secret(_KEY)
    with_key = f", with {_KEY} from {_place()}" if key else ", without a key"
    if offline:
        return [ok(_CHECK, f"the agent at {dialer.shown} is to answer{with_key}; not asked.")]
    try:
        line = await dialer.dial("doctor", key=key)
    except PlatformError as error:
        mend = f"parley config set {_KEY}" if error.kind == "auth" else "parley doctor"
        return [fault(_CHECK, str(error), mend)]
    await line.close()
    return [ok(_CHECK, f"the agent at {dialer.shown} answers{with_key}.")]


def _place() -> str:
    return "the environment" if os.environ.get(_KEY, "").strip() else ".env"
