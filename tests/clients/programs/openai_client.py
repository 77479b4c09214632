"""openai-python: chat completions and responses."""

import json

import openai
from checks import API, BOTH, FOUND, KEY, check, reversed_question, run
from pydantic import BaseModel

client = openai.OpenAI(base_url=API, api_key=KEY, max_retries=0)
PARAMETERS = {
    "type": "object",
    "properties": {"town": {"type": "string"}},
    "required": ["town"],
    "additionalProperties": False,
}
FUNCTION = {"name": "weather", "description": "The weather in a town.", "parameters": PARAMETERS}
CHAT_TOOL = {"type": "function", "function": FUNCTION}
RESPONSE_TOOL = {"type": "function", "strict": True, **FUNCTION}


class Place(BaseModel):
    city: str
    country: str


def user(text):
    return {"role": "user", "content": text}


@check
def plain():
    made = client.chat.completions.create(model="parley", messages=[user("hello")])
    assert made.choices[0].message.content == reversed_question("hello")
    assert made.choices[0].finish_reason == "stop"
    assert made.usage.total_tokens > 0


@check
def stream():
    with client.chat.completions.stream(model="parley", messages=[user("hello there")]) as events:
        deltas = [event.delta for event in events if event.type == "content.delta"]
        final = events.get_final_completion()
    assert len(deltas) > 1
    assert "".join(deltas) == final.choices[0].message.content == reversed_question("hello there")


@check
def tools():
    messages = [user("Weather in Oslo and Rome?")]
    made = client.chat.completions.create(model="parley", messages=messages, tools=[CHAT_TOOL])
    message = made.choices[0].message
    assert made.choices[0].finish_reason == "tool_calls"
    assert len(message.tool_calls) == 2
    messages.append(message)
    for call in message.tool_calls:
        town = json.loads(call.function.arguments)["town"]
        messages.append({"role": "tool", "tool_call_id": call.id, "content": FOUND[town]})
    made = client.chat.completions.create(model="parley", messages=messages, tools=[CHAT_TOOL])
    assert made.choices[0].message.content == BOTH


@check
def structured():
    made = client.chat.completions.parse(
        model="parley", messages=[user("Where?")], response_format=Place
    )
    assert made.choices[0].message.parsed == Place(city="Paris", country="France")


@check
def responses():
    made = client.responses.create(model="parley", input="hello")
    assert made.output_text == reversed_question("hello")
    again = client.responses.create(model="parley", input="again", previous_response_id=made.id)
    assert again.output_text == reversed_question("again")
    assert client.responses.retrieve(made.id).output_text == made.output_text
    parsed = client.responses.parse(model="parley", input="Where?", text_format=Place)
    assert parsed.output_parsed == Place(city="Paris", country="France")


@check
def responses_stream():
    with client.responses.stream(model="parley", input="hello there") as events:
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        final = events.get_final_response()
    assert len(deltas) > 1
    assert "".join(deltas) == final.output_text == reversed_question("hello there")


@check
def responses_tools():
    items = [user("Weather in Oslo and Rome?")]
    made = client.responses.create(model="parley", input=items, tools=[RESPONSE_TOOL])
    calls = [item for item in made.output if item.type == "function_call"]
    assert len(calls) == 2
    items += made.output
    for call in calls:
        found = FOUND[json.loads(call.arguments)["town"]]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": found})
    made = client.responses.create(model="parley", input=items, tools=[RESPONSE_TOOL])
    assert made.output_text == BOTH


@check
def responses_parallel_results():
    """Only the results are sent: the call they answer is in the response before."""
    asked = {"model": "parley", "tools": [RESPONSE_TOOL]}
    made = client.responses.create(input="Weather in Oslo and Rome?", **asked)
    results = [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": FOUND[json.loads(item.arguments)["town"]],
        }
        for item in made.output
        if item.type == "function_call"
    ]
    made = client.responses.create(input=results, previous_response_id=made.id, **asked)
    assert made.output_text == BOTH


@check
def errors():
    try:
        client.chat.completions.create(model="nobody", messages=[user("hello")])
    except openai.NotFoundError as error:
        assert error.code == "model_not_found"
    else:
        raise AssertionError("an unknown model was accepted")
    wrong = openai.OpenAI(base_url=API, api_key="sk-wrong", max_retries=0)
    try:
        wrong.models.list()
    except openai.AuthenticationError:
        pass
    else:
        raise AssertionError("a wrong key was accepted")


run()
