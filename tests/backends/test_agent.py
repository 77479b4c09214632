"""How a conversation's prompts begin: of a turn, and of what tends it, byte for byte the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.agent.person import Soul, UserSettings
from parley.agent.providers.base import ModelRequest, ProviderError
from parley.agent.providers.local.history import wire_messages
from parley.backends.agent import AgentBackend
from parley.backends.base import Backend, Prefix, Standing, Turn
from parley.backends.mock import MockBackend
from parley.config import Settings
from parley.config.settings import LEAN_TOOLS
from parley.profiles import Profile
from parley.protocol import ChatMessage, Final, Request, SessionSource, ToolSpec, Wishes
from tests.agent.providers.local.test_gguf import gguf
from tests.agent.tools.lent import SmallHands
from tests.agent.tools.test_memory import SmallMemory
from tests.backends.proxy.builders import a_turn, backend_at
from tests.servers.scripted_model import Reply, ScriptedModel, Usage
from tests.servers.stage import Stage

ANN = SessionSource("desk", "one", user_id="ann", user_name="Ann")
HELLO = (ChatMessage("user", "hello"),)


@asynccontextmanager
async def a_backend(
    home: Path, server: ScriptedModel, **settings: Any
) -> AsyncIterator[AgentBackend]:
    there = {"base_url": server.base_url, "model": "test-model"}
    given: dict[str, Any] = {
        "model": {"provider": "one"},
        "providers": {"one": there, "two": {**there, "model": "other-model"}},
        **settings,
    }
    profile = Profile("default", home)
    profile.workspace.mkdir(parents=True, exist_ok=True)
    backend = AgentBackend(profile, Settings.model_validate(given), secret=lambda _: None)
    try:
        yield backend
    finally:
        await backend.close()


def turn_in(standing: Standing) -> Turn:
    kept = SmallMemory() if standing.remembers else None
    return replace(
        a_turn("hello", source=standing.source, request=standing.request),
        provider=standing.provider,
        model=standing.model,
        sends_files=standing.sends_files,
        person=standing.person,
        summary=standing.summary,
        memory=standing.memory,
        hands=SmallHands(memory=kept),
    )


async def answered(backend: AgentBackend, turn: Turn) -> None:
    async with aclosing(backend.run(turn)) as events:
        last = [event async for event in events][-1]
    assert isinstance(last, Final), last


async def asked(prefix: Prefix, messages: tuple[ChatMessage, ...] = HELLO) -> None:
    request = ModelRequest(prefix.system, messages, prefix.tools)
    async for _ in prefix.provider.stream(request):
        pass


REMEMBERED = Standing(
    ANN,
    sends_files=True,
    person=UserSettings(soul=Soul("Max", "Rhyme.")),
    summary="They spoke of tea.",
    memory="Notes:\n- [1] likes tea",
)
THEIRS = Request(
    "r1",
    HELLO,
    instructions="Be a pirate.",
    tools=(ToolSpec("todo", "Theirs.", {"type": "object", "properties": {}}),),
)


LEAN = {"prompt": "lean"}


async def test_a_lean_prompt_is_short_and_has_a_place_for_all_that_is_known(
    tmp_path: Path, model: ScriptedModel
) -> None:
    async with a_backend(tmp_path, model, agent=LEAN) as backend:
        await answered(backend, turn_in(REMEMBERED))
        prefix = await backend.prefix(REMEMBERED)
    (request,) = model.requests
    names = [each["function"]["name"] for each in request.json["tools"]]
    assert tuple(names) == LEAN_TOOLS
    system = str(request.json["messages"][0]["content"])
    parts = ("Parley", "Ann", "Max", "Rhyme.", "likes tea", "spoke of tea")
    assert [part for part in parts if part not in system] == []
    assert prefix is not None
    assert prefix.system == system


async def test_a_lean_hello_takes_two_kilobytes_of_a_local_models_prompt(tmp_path: Path) -> None:
    async with a_backend(tmp_path, ScriptedModel(), agent=LEAN) as backend:
        prefix = await backend.prefix(Standing(ANN))
    assert prefix is not None
    request = ModelRequest(prefix.system, (ChatMessage("user", "hi"),), prefix.tools)
    told = wire_messages(request, with_tools=True)
    assert len(json.dumps(told)) <= 2_048


async def test_the_profile_chooses_the_lean_tools(tmp_path: Path, model: ScriptedModel) -> None:
    chosen = {**LEAN, "lean_tools": ["now", "todo", "run_command"], "tools": ["now", "todo"]}
    async with a_backend(tmp_path, model, agent=chosen) as backend:
        await answered(backend, turn_in(Standing(ANN)))
    (request,) = model.requests
    assert [each["function"]["name"] for each in request.json["tools"]] == ["now", "todo"]


@pytest.mark.parametrize(
    ("prompt", "weights", "is_lean"),
    [
        ("auto", "qwen", True),
        ("full", "qwen", False),
        ("auto", "large.gguf", False),
        ("lean", "large.gguf", True),
    ],
)
async def test_a_local_models_size_chooses_its_prompt(
    tmp_path: Path, prompt: str, weights: str, is_lean: bool
) -> None:
    if weights.endswith(".gguf"):
        weights = str(tmp_path / weights)
        Path(weights).write_bytes(gguf(label="7B"))
    profile = Profile("default", tmp_path)
    given = {"local": {"weights": weights}, "agent": {"prompt": prompt}}
    backend = AgentBackend(profile, Settings.model_validate(given), secret=lambda _: None)
    prefix = await backend.prefix(Standing(ANN))
    await backend.close()
    assert prefix is not None
    assert (tuple(tool.name for tool in prefix.tools) == LEAN_TOOLS) is is_lean


@pytest.mark.parametrize(
    "standing",
    [
        Standing(ANN),
        REMEMBERED,
        replace(REMEMBERED, remembers=False),
        replace(REMEMBERED, provider="two"),
        replace(REMEMBERED, request=THEIRS),
        replace(REMEMBERED, request=replace(THEIRS, wishes=Wishes(tool_choice="none"))),
        replace(REMEMBERED, person=UserSettings.read({"skills.files": "off"})),
    ],
    ids=["plain", "all of it", "unremembered", "chosen", "a program", "no tools", "turned off"],
)
async def test_a_prefix_is_how_a_turn_begins(
    tmp_path: Path, model: ScriptedModel, standing: Standing
) -> None:
    async with a_backend(tmp_path, model) as backend:
        await answered(backend, turn_in(standing))
        prefix = await backend.prefix(standing)
        assert prefix is not None
        await asked(prefix)
    turn, tended = (request.json for request in model.requests)
    assert tended["messages"] == turn["messages"]
    assert json.dumps(tended.get("tools")) == json.dumps(turn.get("tools"))
    assert tended["model"] == turn["model"]
    names = [each["function"]["name"] for each in turn.get("tools", ())]
    assert ("memory" in names) == (standing.remembers and bool(names))


async def test_memory_and_summary_come_last(tmp_path: Path, model: ScriptedModel) -> None:
    async with a_backend(tmp_path, model) as backend:
        whole = await backend.prefix(replace(REMEMBERED, request=THEIRS))
        bare = await backend.prefix(replace(REMEMBERED, request=THEIRS, summary="", memory=""))
    assert whole is not None
    assert bare is not None
    assert bare.system.endswith("Rhyme.\n\nBe a pirate.")
    end = whole.system.removeprefix(bare.system)
    assert end.startswith(
        "\n\nNotes:\n- [1] likes tea\n\nEarlier in this conversation (a summary; "
    )
    assert end.endswith("\nThey spoke of tea.")


async def test_a_model_without_tools_is_told_nothing_remembered_and_learns_nothing(
    tmp_path: Path, model: ScriptedModel
) -> None:
    there = {"base_url": model.base_url, "model": "tiny", "tools": False}
    async with a_backend(tmp_path, model, providers={"one": there}) as backend:
        prefix = await backend.prefix(REMEMBERED)
    assert prefix is not None
    assert (prefix.learns, prefix.tools) == (False, ())
    assert "tea" not in prefix.system


async def test_the_settings_may_name_who_tends(tmp_path: Path, model: ScriptedModel) -> None:
    async with a_backend(tmp_path, model) as plain:
        own = await plain.prefix(REMEMBERED)
    async with a_backend(tmp_path, model, memory={"provider": "two", "model": "x"}) as backend:
        prefix = await backend.prefix(REMEMBERED)
    assert own is not None
    assert prefix is not None
    assert (prefix.provider.label, prefix.provider.model) == ("two", "x")
    assert (prefix.system, prefix.tools) == (own.system, own.tools)
    assert (own.provider.label, own.learns, own.alone) == ("one", True, False)


@pytest.mark.parametrize("fallback", [[], ["one"]], ids=["by itself", "before another"])
async def test_a_model_on_this_machine_does_one_thing_at_a_time(
    tmp_path: Path, model: ScriptedModel, fallback: list[str]
) -> None:
    chosen = {"provider": "local", "fallback": fallback}
    async with a_backend(tmp_path, model, model=chosen) as backend:
        local = await backend.prefix(Standing(ANN))
        far = await backend.prefix(Standing(ANN, provider="one"))
    assert local is not None
    assert far is not None
    assert (local.alone, far.alone) == (True, False)


async def test_where_memory_is_off_nothing_is_tended_and_no_tool_is_offered(
    tmp_path: Path, model: ScriptedModel
) -> None:
    async with a_backend(tmp_path, model, memory={"enabled": False}) as backend:
        assert await backend.prefix(REMEMBERED) is None
        await answered(backend, turn_in(REMEMBERED))
    assert "memory" not in [each["function"]["name"] for each in model.requests[0].json["tools"]]


async def test_who_cannot_be_asked_is_said_in_a_sentence(
    tmp_path: Path, model: ScriptedModel
) -> None:
    async with a_backend(tmp_path, model, memory={"provider": "nobody"}) as backend:
        with pytest.raises(ProviderError, match="no provider named nobody"):
            await backend.prefix(REMEMBERED)


async def test_turns_teach_how_the_model_counts(
    tmp_path: Path, model: ScriptedModel, stage: Stage
) -> None:
    stage.then(Reply(text="well", usage=Usage(4_000, 5)))
    async with a_backend(tmp_path, model) as backend:
        await answered(backend, turn_in(REMEMBERED))
        assert backend.calibration.factor("one", "test-model") > 1.2


async def test_others_remember_by_themselves() -> None:
    others: list[Backend] = [MockBackend(), backend_at("http://127.0.0.1:1")]
    for each in others:
        assert await each.prefix(REMEMBERED) is None
        assert each.calibration is None
        await each.close()
