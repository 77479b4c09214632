"""`llm` of Simon Willison: a model of its `extra-openai-models.yaml`."""

import json
import os
from pathlib import Path

home = Path(os.environ["LLM_USER_PATH"])
(home / "extra-openai-models.yaml").write_text(
    "- model_id: parley\n"
    "  model_name: parley\n"
    f"  api_base: {os.environ['API']}\n"
    "  api_key_name: parley\n"
    "  supports_tools: true\n"
    "  supports_schema: true\n"
)

(home / "keys.json").write_text(json.dumps({"parley": os.environ["KEY"]}))

import llm
from checks import BOTH, FOUND, check, reversed_question, run
from pydantic import BaseModel

model = llm.get_model("parley")


class Place(BaseModel):
    city: str
    country: str


def weather(town: str) -> str:
    """The weather in a town."""
    return FOUND[town]


@check
def plain():
    assert model.prompt("hello", stream=False).text() == reversed_question("hello")


@check
def stream():
    chunks = [chunk for chunk in model.prompt("hello there") if chunk]
    assert len(chunks) > 1
    assert "".join(chunks) == reversed_question("hello there")


@check
def conversation():
    talk = model.conversation()
    talk.prompt("hello").text()
    assert talk.prompt("again").text() == reversed_question("again")


@check
def tools():
    assert model.chain("Weather in Oslo and Rome?", tools=[weather]).text() == BOTH


@check
def structured():
    made = json.loads(model.prompt("Where?", schema=Place).text())
    assert made == {"city": "Paris", "country": "France"}


run()
