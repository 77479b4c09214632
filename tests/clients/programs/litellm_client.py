"""litellm: `openai/…` models at an address of one's own."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks a server on the internet

import litellm
from checks import API, BOTH, FOUND, KEY, check, reversed_question, run
from pydantic import BaseModel

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a town.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}


class Place(BaseModel):
    city: str
    country: str


def ask(messages, **more):
    return litellm.completion(
        model="openai/parley", api_base=API, api_key=KEY, messages=messages, num_retries=0, **more
    )


def user(text):
    return {"role": "user", "content": text}


@check
def plain():
    made = ask([user("hello")])
    assert made.choices[0].message.content == reversed_question("hello")


@check
def stream():
    chunks = [chunk.choices[0].delta.content for chunk in ask([user("hello there")], stream=True)]
    texts = [text for text in chunks if text]
    assert len(texts) > 1
    assert "".join(texts) == reversed_question("hello there")


@check
def tools():
    messages = [user("Weather in Oslo and Rome?")]
    message = ask(messages, tools=[WEATHER]).choices[0].message
    assert len(message.tool_calls) == 2
    messages.append(message.model_dump())
    for call in message.tool_calls:
        town = json.loads(call.function.arguments)["town"]
        messages.append({"role": "tool", "tool_call_id": call.id, "content": FOUND[town]})
    assert ask(messages, tools=[WEATHER]).choices[0].message.content == BOTH


@check
def structured():
    made = ask([user("Where?")], response_format=Place)
    assert json.loads(made.choices[0].message.content) == {"city": "Paris", "country": "France"}


@check
def responses():
    made = litellm.responses(model="openai/parley", api_base=API, api_key=KEY, input="hello")
    assert made.output[0].content[0].text == reversed_question("hello")


run()
