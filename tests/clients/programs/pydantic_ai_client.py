"""pydantic-ai: output types by tool and by schema, over chat completions and responses."""

from checks import API, BOTH, FOUND, KEY, check, reversed_question, run
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=API, api_key=KEY)


class Place(BaseModel):
    city: str
    country: str


def chat():
    return OpenAIChatModel("parley", provider=provider)


def weather(town: str) -> str:
    """The weather in a town."""
    return FOUND[town]


@check
async def plain():
    assert (await Agent(chat()).run("hello")).output == reversed_question("hello")


@check
async def stream():
    async with Agent(chat()).run_stream("hello there") as result:
        deltas = [text async for text in result.stream_text(delta=True, debounce_by=None)]
    assert len(deltas) > 1
    assert "".join(deltas) == reversed_question("hello there")


@check
async def tools():
    made = await Agent(chat(), tools=[weather]).run("Weather in Oslo and Rome?")
    assert made.output == BOTH


@check
async def output_type():
    """By a tool that must be called: the library's default."""
    made = await Agent(chat(), output_type=Place).run("Where?")
    assert made.output == Place(city="Paris", country="France")


@check
async def output_type_after_tools():
    agent = Agent(chat(), output_type=Place, tools=[weather])
    made = await agent.run("Weather in Oslo and Rome?")
    assert made.output == Place(city="Paris", country="France")


@check
async def native_output():
    made = await Agent(chat(), output_type=NativeOutput(Place)).run("Where?")
    assert made.output == Place(city="Paris", country="France")


@check
async def responses():
    model = OpenAIResponsesModel("parley", provider=provider)
    assert (await Agent(model).run("hello")).output == reversed_question("hello")
    made = await Agent(model, tools=[weather]).run("Weather in Oslo and Rome?")
    assert made.output == BOTH
    made = await Agent(model, output_type=Place).run("Where?")
    assert made.output == Place(city="Paris", country="France")


run()
