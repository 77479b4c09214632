"""openai-agents: over responses, its default, and over chat completions."""

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from checks import API, BOTH, FOUND, KEY, check, reversed_question, run
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)


class Place(BaseModel):
    city: str
    country: str


@function_tool
def weather(town: str) -> str:
    """The weather in a town."""
    return FOUND[town]


def agent(kind=OpenAIResponsesModel, **more):
    client = AsyncOpenAI(base_url=API, api_key=KEY, max_retries=0)
    return Agent(name="Tester", model=kind("parley", client), **more)


@check
async def plain():
    made = await Runner.run(agent(), "hello")
    assert made.final_output == reversed_question("hello")


@check
async def stream():
    made = Runner.run_streamed(agent(), "hello there")
    deltas = []
    async for event in made.stream_events():
        kind = getattr(getattr(event, "data", None), "type", "")
        if kind == "response.output_text.delta":
            deltas.append(event.data.delta)
    assert len(deltas) > 1
    assert "".join(deltas) == made.final_output == reversed_question("hello there")


@check
async def tools():
    made = await Runner.run(agent(tools=[weather]), "Weather in Oslo and Rome?")
    assert made.final_output == BOTH


@check
async def required_tool():
    settings = ModelSettings(tool_choice="required")
    made = await Runner.run(
        agent(tools=[weather], model_settings=settings), "Weather in Oslo and Rome?"
    )
    assert made.final_output == BOTH


@check
async def structured():
    made = await Runner.run(agent(output_type=Place), "Where?")
    assert made.final_output == Place(city="Paris", country="France")


@check
async def session():
    kept = SQLiteSession("one")
    one = agent()
    await Runner.run(one, "hello", session=kept, run_config=RunConfig(tracing_disabled=True))
    made = await Runner.run(one, "again", session=kept)
    assert made.final_output == reversed_question("again")


@check
async def chat_completions():
    one = agent(OpenAIChatCompletionsModel, tools=[weather])
    made = await Runner.run(one, "Weather in Oslo and Rome?")
    assert made.final_output == BOTH


run()
