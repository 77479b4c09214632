"""The larger model calls tools by schema. Runs where its weights are installed already."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from parley.agent.providers.base import ModelRequest
from parley.agent.providers.local.install import is_installed
from parley.agent.providers.local.provider import LocalProvider
from parley.agent.providers.local.weights import CATALOGUE, installed_file
from parley.config.settings import LocalModelSettings
from parley.protocol import ChatMessage, ToolCall
from tests.agent.providers.local.test_schema import NOW, READ_FILE
from tests.agent.providers.local.watching import answer

_QWEN = CATALOGUE["qwen"]
_WEIGHTS = str(installed_file(_QWEN))

pytestmark = [
    pytest.mark.skipif(
        not is_installed(_QWEN), reason="qwen is not installed (`parley model install qwen`)"
    ),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def qwen() -> AsyncIterator[LocalProvider]:
    settings = LocalModelSettings(weights=_WEIGHTS, context_tokens=1024, tools="on")
    provider = LocalProvider(settings)
    yield provider
    await provider.close()


def _request(*messages: ChatMessage) -> ModelRequest:
    system = "You are Parley, a helpful assistant. Be brief."
    return ModelRequest(system, messages, (NOW, READ_FILE), max_output_tokens=100)


@pytest.mark.parametrize(
    ("question", "tool", "arguments"),
    [
        ("What time is it in Tokyo?", "now", {"timezone": "Asia/Tokyo"}),
        ("What does notes.txt say?", "read_file", {"path": "notes.txt"}),
        ("Read src/main.py and tell me what it does.", "read_file", {"path": "src/main.py"}),
        ("What day is today?", "now", {}),
        ("Show me README.md from line 10.", "read_file", {"path": "README.md", "start": 10}),
    ],
)
async def test_a_question_that_needs_a_tool_calls_it(
    qwen: LocalProvider, question: str, tool: str, arguments: dict[str, object]
) -> None:
    deltas, reply = await answer(qwen, _request(ChatMessage("user", question)))
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [(tool, arguments)]
    assert deltas == []
    assert reply.text == ""


async def test_a_question_that_needs_none_is_answered_in_a_stream(qwen: LocalProvider) -> None:
    request = _request(ChatMessage("user", "What is the capital of France?"))
    deltas, reply = await answer(qwen, request)
    assert "Paris" in reply.text
    assert "".join(deltas) == reply.text
    assert len(deltas) > 3
    assert reply.tool_calls == ()


async def test_a_result_is_told_to_the_person(qwen: LocalProvider) -> None:
    call = ToolCall("1", "read_file", {"path": "todo.md"})
    request = _request(
        ChatMessage("user", "What is in todo.md?"),
        ChatMessage("assistant", tool_calls=(call,)),
        ChatMessage("tool", "- buy oat milk", tool_call_id="1", tool_name="read_file"),
    )
    _, reply = await answer(qwen, request)
    assert "oat milk" in reply.text
    assert reply.tool_calls == ()
