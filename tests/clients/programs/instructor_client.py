"""instructor: validated models by tools, by JSON schema, and streamed in part."""

from collections.abc import Iterable

import instructor
from checks import API, KEY, check, reversed_question, run
from openai import OpenAI
from pydantic import BaseModel


class Place(BaseModel):
    city: str
    country: str


class weather(BaseModel):
    """The weather in a town."""

    town: str


PARIS = {"city": "Paris", "country": "France"}
ASKED = {"model": "parley", "messages": [{"role": "user", "content": "Where?"}]}


def client(mode):
    return instructor.from_openai(OpenAI(base_url=API, api_key=KEY, max_retries=0), mode=mode)


@check
def plain():
    messages = [{"role": "user", "content": "hello"}]
    made = client(instructor.Mode.TOOLS).chat.completions.create(
        model="parley", messages=messages, response_model=None
    )
    assert made.choices[0].message.content == reversed_question("hello")


@check
def tools():
    made = client(instructor.Mode.TOOLS).chat.completions.create(**ASKED, response_model=Place)
    assert made.model_dump() == PARIS


@check
def parallel_tools():
    made = client(instructor.Mode.PARALLEL_TOOLS).chat.completions.create(
        model="parley",
        messages=[{"role": "user", "content": "Weather in Oslo and Rome?"}],
        response_model=Iterable[weather],
    )
    assert [each.town for each in made] == ["Oslo", "Rome"]


@check
def structured():
    made = client(instructor.Mode.JSON_SCHEMA).chat.completions.create(
        **ASKED, response_model=Place
    )
    assert made.model_dump() == PARIS


@check
def stream():
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        parts = list(client(mode).chat.completions.create_partial(**ASKED, response_model=Place))
        assert parts[-1].model_dump() == PARIS, mode


run()
