"""A child that a tool starts sees its own profile's environment and not the gateway's."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import aclosing
from pathlib import Path

import pytest
from pydantic import BaseModel

from parley.agent.tools import TOOLS, ToolContext
from parley.agent.tools.base import tool
from parley.backends.agent import AgentBackend
from parley.backends.base import Turn
from parley.config import Settings
from parley.profiles import Profile, named_profile
from parley.protocol import ChatMessage, SessionSource
from tests.agent.builders import results
from tests.servers.scripted_model import ScriptedModel
from tests.servers.scripted_reply import Reply
from tests.servers.stage import Stage


class Nothing(BaseModel):
    pass


@tool()
async def look_around(arguments: Nothing, context: ToolContext) -> str:
    """What a program sees of its environment."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", "import json, os; print(json.dumps(dict(os.environ)))"),
        env=context.environment,
        cwd=context.workspace,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    return out.decode()


async def _nothing() -> tuple[ChatMessage, ...]:
    return ()


async def _fine() -> None:
    return


def a_turn(profile: Profile) -> Turn:
    return Turn(
        id=1,
        attempt=1,
        profile=profile,
        session_key="key",
        session_id="s1",
        source=SessionSource("desk", "one"),
        history=(),
        progress=(ChatMessage("user", "Look around."),),
        provider=None,
        model=None,
        async_delivery=True,
        steer=_nothing,
        check=_fine,
    )


async def test_the_child_of_a_tool_sees_its_own_profile_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TOOLS, "look_around", look_around)
    harmless = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    environ = {**harmless, "OPENAI_API_KEY": "sk-1", "PARLEY_LOG_LEVEL": "error"}
    stage = Stage()
    seen = {}
    async with ScriptedModel(stage) as model:
        settings = Settings.model_validate(
            {
                "model": {"provider": "scripted"},
                "providers": {"scripted": {"base_url": model.base_url, "model": "scripted"}},
                "agent": {"tools": ["look_around"]},
            }
        )
        for name in ("default", "ann", "bob"):
            profile = named_profile(name, {"PARLEY_HOME": str(tmp_path)})
            profile.workspace.mkdir(parents=True)
            profile.env_file.write_text(f"MY_KEY=key-{name}\nPARLEY_NOTE=note-{name}\n")
            backend = AgentBackend(profile, settings, secret=lambda _: None, environ=environ)
            stage.then(Reply(tool_calls=(("look_around", {}),)), Reply("Done."))
            async with aclosing(backend.run(a_turn(profile))) as events:
                (result,) = results([event async for event in events])
            await backend.close()
            seen[name] = json.loads(result)
    assert seen == {
        name: {
            **harmless,
            "HOME": os.devnull,
            "PARLEY_HOME": str(tmp_path),
            "PARLEY_PROFILE": name,
            "PARLEY_NOTE": f"note-{name}",
        }
        for name in ("default", "ann", "bob")
    }
