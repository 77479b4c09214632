"""LangChain: `ChatOpenAI` over chat completions, and `OpenAIEmbeddings`."""

from checks import API, BOTH, FOUND, KEY, check, reversed_question, run
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

model = ChatOpenAI(base_url=API, api_key=KEY, model="parley", max_retries=0)


class Place(BaseModel):
    """A city."""

    city: str
    country: str


@tool
def weather(town: str) -> str:
    """The weather in a town."""
    return FOUND[town]


@check
def plain():
    assert model.invoke("hello").content == reversed_question("hello")


@check
def stream():
    chunks = [chunk.content for chunk in model.stream("hello there")]
    assert sum(bool(chunk) for chunk in chunks) > 1
    assert "".join(chunks) == reversed_question("hello there")


@check
def tools():
    with_tools = model.bind_tools([weather])
    messages = [HumanMessage("Weather in Oslo and Rome?")]
    asked = with_tools.invoke(messages)
    assert len(asked.tool_calls) == 2
    messages.append(asked)
    for call in asked.tool_calls:
        messages.append(ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]))
    assert with_tools.invoke(messages).content == BOTH


@check
def tools_streamed():
    with_tools = model.bind_tools([weather])
    whole = None
    for chunk in with_tools.stream("Weather in Oslo and Rome?"):
        whole = chunk if whole is None else whole + chunk
    assert [call["args"]["town"] for call in whole.tool_calls] == ["Oslo", "Rome"]


@check
def embeddings():
    texts = OpenAIEmbeddings(
        base_url=API, api_key=KEY, model="parley", check_embedding_ctx_length=False
    )
    pet = texts.embed_query("what pet do they have")
    known = texts.embed_documents(["The server is called heron", "Their dog is called Biscuit"])
    server, dog = (sum(a * b for a, b in zip(pet, each, strict=True)) for each in known)
    assert dog > server


@check
def any_tool():
    asked = model.bind_tools([Place], tool_choice="any").invoke("Where?")
    [call] = asked.tool_calls
    assert (call["name"], call["args"]["city"]) == ("Place", "Paris")


@check
def structured():
    for method in ("json_schema", "function_calling"):
        made = model.with_structured_output(Place, method=method).invoke("Where?")
        assert made == Place(city="Paris", country="France"), method


run()
