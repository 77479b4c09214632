"""Real client libraries against a real gateway, each in a process of its own."""

from __future__ import annotations

import pytest

from tests.clients.conftest import RunClient

_CHECKS = {
    "openai_client.py": (
        *("plain", "stream", "tools", "structured", "errors"),
        *("responses", "responses_stream", "responses_tools"),
        "responses_parallel_results",
    ),
    "langchain_client.py": (
        *("plain", "stream", "tools", "tools_streamed", "any_tool", "structured"),
        "embeddings",
    ),
    "pydantic_ai_client.py": (
        *("plain", "stream", "tools", "output_type", "output_type_after_tools"),
        *("native_output", "responses"),
    ),
    "openai_agents_client.py": (
        *("plain", "stream", "tools", "required_tool", "structured", "session"),
        "chat_completions",
    ),
    "instructor_client.py": ("plain", "tools", "parallel_tools", "structured", "stream"),
    "litellm_client.py": ("plain", "stream", "tools", "structured", "responses"),
    "llm_client.py": ("plain", "stream", "conversation", "tools", "structured"),
    "openai_client.mjs": ("plain", "stream", "tools", "structured", "responses"),
    "ai_sdk_client.mjs": (
        *("plain", "stream", "tools", "required_tool", "structured", "responses"),
        "responses_second_turn",
    ),
}


@pytest.mark.parametrize(
    ("program", "check"),
    [(program, check) for program, checks in _CHECKS.items() for check in checks],
)
def test_client(run_client: RunClient, program: str, check: str) -> None:
    results = run_client(program)
    found = results.get(check) or results.get("", "There is no such check.")
    if found != "ok":
        pytest.fail(found, pytrace=False)


@pytest.mark.parametrize("program", _CHECKS)
def test_every_check_of_a_program_is_listed(run_client: RunClient, program: str) -> None:
    assert set(run_client(program)) == set(_CHECKS[program])
