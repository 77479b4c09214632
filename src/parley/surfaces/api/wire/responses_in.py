"""`POST /v1/responses`: the request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from parley.protocol import Wishes
from parley.surfaces.api.wire.body import check, tame
from parley.surfaces.api.wire.content import Keeper
from parley.surfaces.api.wire.conversation import Conversation, read_call
from parley.surfaces.api.wire.errors import BadRequest
from parley.surfaces.api.wire.items import kept_items
from parley.surfaces.api.wire.models import (
    MOST_MESSAGES,
    MOST_TOOLS,
    Content,
    Effort,
    Function,
    FunctionCall,
    MaxTokens,
    Metadata,
    ModelName,
    Penalty,
    Seed,
    Stop,
    Temperature,
    TopP,
    User,
    WireModel,
)
from parley.surfaces.api.wire.parsed import ParsedRequest
from parley.surfaces.api.wire.tools import Choice, JsonSchema, Mode, choose, tool_specs

__all__ = [
    "ItemsRequest",
    "ResponseItem",
    "ResponseRequest",
    "add_item",
    "parse_items",
    "read_response",
]


class ResponseItem(WireModel):
    """A message, a call of one of your functions, or what the function gave."""

    type: str = Field(
        "message", examples=["message", "function_call", "function_call_output"], max_length=64
    )
    id: str | None = Field(
        None, description="Of an item that was given out; of `item_reference`, which one it is."
    )
    role: Literal["system", "developer", "user", "assistant"] | None = Field(
        None, description="Of `message`."
    )
    content: Content | None = Field(None, description="Of `message`.", examples=["Hello!"])
    call_id: str | None = Field(
        None, description="Of `function_call` and its output.", min_length=1, max_length=256
    )
    name: str | None = Field(None, description="Of `function_call`.", min_length=1, max_length=128)
    arguments: str | None = Field(None, description="Of `function_call`: JSON, as text.")
    output: Content | None = Field(None, description="Of `function_call_output`.")


class ResponseTool(WireModel):
    """A tool of yours. Only functions are known."""

    type: str = Field(examples=["function"], max_length=64)
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextFormat(WireModel):
    """The form of the reply, where the model's provider can do it."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class Reasoning(WireModel):
    """How a model that reasons does so."""

    effort: Effort = None


class TextOptions(WireModel):
    """How the text of the reply is written."""

    format: TextFormat | None = None


_Items: TypeAlias = Annotated[list[ResponseItem], Field(max_length=MOST_MESSAGES, fail_fast=True)]


class ItemsRequest(WireModel):
    """What responses and runs have in common."""

    model: ModelName = None
    input: str | _Items = Field(
        description="What to answer: a text, or the items of a conversation.", examples=["Hello!"]
    )
    instructions: str | None = Field(None, description="How to answer, beside the profile's own.")
    previous_response_id: str | None = Field(
        None, description="The response that this one goes on from.", max_length=256
    )
    max_output_tokens: MaxTokens = None
    temperature: Temperature = None
    top_p: TopP = None
    seed: Seed = None
    presence_penalty: Penalty = None
    frequency_penalty: Penalty = None
    reasoning: Reasoning | None = None
    stop: Stop = None
    tools: list[ResponseTool] | None = Field(None, max_length=MOST_TOOLS, fail_fast=True)
    tool_choice: Mode | Choice | None = None
    parallel_tool_calls: bool | None = Field(None, description="Several calls in one reply.")
    text: TextOptions | None = None
    user: User = None
    metadata: Metadata = None


class ConversationRef(WireModel):
    """A conversation that was made before."""

    id: str = Field(max_length=256)


class ResponseRequest(ItemsRequest):
    """What to answer, and how."""

    stream: bool | None = Field(None, description="Send the reply as it is made.")
    store: bool | None = Field(None, description="Keep the response; it is kept by default.")
    background: bool | None = Field(
        None, description="Answer without the connection; the response tells how far it is."
    )
    conversation: str | ConversationRef | None = Field(
        None, description="The conversation that it belongs to, or its id."
    )
    prompt: dict[str, Any] | None = Field(None, description="Not possible: use `instructions`.")
    top_logprobs: int | None = Field(None, description="Only 0 is possible.", ge=0)


def read_response(body: object, keep: Keeper, *, continued: bool = False) -> ParsedRequest:
    """What the program asks for; raises `BadRequest`.

    `continued`: the conversation is one we have stored, as after `previous_response_id`.
    """
    asked = check(ResponseRequest, tame(body))
    refused = {
        "background": (
            "A response in the background is stored: leave out `store`.",
            asked.background and asked.store is False,
        ),
        "conversation": (
            "Send `conversation` or `previous_response_id`, not both.",
            asked.conversation is not None and asked.previous_response_id is not None,
        ),
        "prompt": ("`prompt` is not supported; use `instructions`.", asked.prompt is not None),
        "top_logprobs": ("The probabilities of tokens are not given here.", asked.top_logprobs),
    }
    for param, (sentence, is_asked) in refused.items():
        if is_asked:
            raise BadRequest(sentence, param=param, code="unsupported_parameter")
    conversation = asked.conversation
    return parse_items(
        asked,
        keep,
        continued=continued,
        stream=asked.stream or False,
        store=asked.store is not False,
        background=asked.background or False,
        conversation=conversation.id if isinstance(conversation, ConversationRef) else conversation,
    )


def parse_items(
    asked: ItemsRequest,
    keep: Keeper,
    *,
    continued: bool,
    stream: bool,
    store: bool,
    session_id: str | None = None,
    background: bool = False,
    conversation: str | None = None,
    before: Sequence[ResponseItem] = (),
) -> ParsedRequest:
    """What a response and a run ask for alike."""
    box = choose(asked.tool_choice, tool_specs(_functions(asked.tools or ())))
    wanted = asked.text.format if asked.text else None
    known = continued or asked.previous_response_id is not None or conversation is not None
    said = Conversation("input", continued=known)
    said.instruct(asked.instructions, param="instructions")
    for index, item in enumerate(before):
        add_item(item, f"conversation_history[{index}]", said)
    if isinstance(asked.input, str):
        said.ask(asked.input, param="input")
    else:
        for index, item in enumerate(asked.input):
            add_item(item, f"input[{index}]", said)
    return ParsedRequest(
        model=asked.model,
        messages=said.messages(keep),
        instructions=said.instructions,
        tools=box.tools,
        wishes=Wishes(
            max_output_tokens=asked.max_output_tokens,
            temperature=asked.temperature,
            top_p=asked.top_p,
            seed=asked.seed,
            presence_penalty=asked.presence_penalty,
            frequency_penalty=asked.frequency_penalty,
            reasoning_effort=asked.reasoning.effort if asked.reasoning else None,
            stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ()),
            tool_choice=box.mode,
            tool=box.only,
            parallel_tool_calls=asked.parallel_tool_calls,
            response_format=_format(wanted),
        ),
        stream=stream,
        include_usage=True,
        store=store,
        previous_response_id=asked.previous_response_id or None,
        session_id=session_id,
        user=asked.user,
        metadata=asked.metadata or {},
        background=background,
        conversation=conversation,
        items=kept_items(asked.input),
    )


def _functions(tools: Sequence[ResponseTool]) -> Iterator[tuple[str, Function]]:
    for index, tool in enumerate(tools):
        param = f"tools[{index}]"
        if tool.type != "function":
            kind = tool.type if tool.type.isprintable() else ascii(tool.type)
            raise BadRequest(
                f"The built-in tool {kind} is not offered here; only functions of your own are.",
                param=f"{param}.type",
                code="unsupported_parameter",
            )
        named = {"name": tool.name} if tool.name is not None else {}
        more = {
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": tool.strict,
        }
        yield param, check(Function, {**named, **more}, param=param)


def _format(wanted: TextFormat | None) -> dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "json_object"}
    given = wanted.model_dump(by_alias=True, exclude_none=True, exclude={"type"})
    schema = check(JsonSchema, given, param="text.format")
    return {
        "type": "json_schema",
        "json_schema": schema.model_dump(by_alias=True, exclude_none=True),
    }


def add_item(item: ResponseItem, where: str, conversation: Conversation) -> None:
    """One item, as the message, call or result that it is."""
    match item.type:
        case "message":
            _add_message(item, where, conversation)
        case "function_call":
            named = FunctionCall(
                name=_given(item.name, f"{where}.name"),
                arguments=_given(item.arguments, f"{where}.arguments"),
            )
            call_id = _given(item.call_id, f"{where}.call_id")
            call = read_call(call_id, named, param=f"{where}.arguments")
            conversation.call(call, param=where)
        case "function_call_output":
            call_id = _given(item.call_id, f"{where}.call_id")
            if item.output is None:
                raise BadRequest(f"`{where}.output` is missing.", param=f"{where}.output")
            conversation.answer(call_id, item.output, where=where, param=f"{where}.output")
        case "reasoning":
            pass  # what a model thought before is not given to another
        case "item_reference":
            raise BadRequest(f"`{where}.id` is missing.", param=f"{where}.id")
        case _:
            kind = item.type if item.type.isprintable() else ascii(item.type)
            raise BadRequest(f"Items of the type {kind} are not supported.", param=f"{where}.type")


def _add_message(item: ResponseItem, where: str, conversation: Conversation) -> None:
    param = f"{where}.content"
    match item.role:
        case None:
            raise BadRequest(f"`{where}.role` is missing.", param=f"{where}.role")
        case "system" | "developer":
            conversation.instruct(item.content, param=param)
        case "user":
            conversation.ask(item.content, param=param)
        case "assistant":
            conversation.reply(item.content, param=param)


def _given(text: str | None, param: str) -> str:
    if text is None:
        raise BadRequest(f"`{param}` is missing.", param=param)
    return text
