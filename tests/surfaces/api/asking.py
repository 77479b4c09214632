"""Small things that the tests with OpenAI's client say again and again."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

__all__ = ["WEATHER", "say", "user"]

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


async def say(client: AsyncOpenAI, text: str, **more: Any) -> str:
    """Ask one thing; the answer."""
    answer = await client.chat.completions.create(model="default", messages=[user(text)], **more)
    return answer.choices[0].message.content or ""
