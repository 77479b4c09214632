"""`POST /v1/chat/completions`: the request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from parley.protocol import ToolCall, Wishes
from parley.surfaces.api.wire.body import check, tame
from parley.surfaces.api.wire.content import Keeper
from parley.surfaces.api.wire.conversation import Conversation, read_call
from parley.surfaces.api.wire.errors import BadRequest
from parley.surfaces.api.wire.models import (
    MOST_MESSAGES,
    MOST_TOOLS,
    Call,
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
    StreamOptions,
    Temperature,
    TopP,
    User,
    WireModel,
)
from parley.surfaces.api.wire.parsed import ParsedRequest
from parley.surfaces.api.wire.tools import Choice, JsonSchema, choose, tool_specs

__all__ = ["ChatCompletionRequest", "read_chat"]


class Message(WireModel):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = Field(None, examples=["Hello!"])
    name: str | None = Field(
        None,
        description="Who of several speaks; of the role `function`: which one it was.",
        max_length=256,
    )
    refusal: str | None = None
    tool_calls: list[Call] | None = Field(
        None, description="Of the role `assistant`.", max_length=MOST_TOOLS, fail_fast=True
    )
    tool_call_id: str | None = Field(
        None, description="Of the role `tool`: the call it answers.", max_length=256
    )
    function_call: FunctionCall | None = Field(None, description="The old form of `tool_calls`.")


class ChatTool(WireModel):
    """A tool of yours. Only functions are known."""

    type: str = Field("function", examples=["function"])
    function: Function | None = None


class ResponseFormat(WireModel):
    """The form of the reply, where the model's provider can do it."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


_Messages: TypeAlias = Annotated[list[Message], Field(max_length=MOST_MESSAGES, fail_fast=True)]


class ChatCompletionRequest(WireModel):
    """A conversation, and how its next message is to be made."""

    model: ModelName = None
    messages: _Messages = Field(
        description="The conversation; the last message is of a user or a tool.",
        examples=[[{"role": "user", "content": "Hello!"}]],
    )
    stream: bool | None = Field(None, description="Send the reply as it is made.")
    stream_options: StreamOptions | None = None
    max_tokens: MaxTokens = None
    max_completion_tokens: MaxTokens = None
    temperature: Temperature = None
    top_p: TopP = None
    seed: Seed = None
    presence_penalty: Penalty = None
    frequency_penalty: Penalty = None
    reasoning_effort: Effort = None
    stop: Stop = None
    tools: list[ChatTool] | None = Field(None, max_length=MOST_TOOLS, fail_fast=True)
    tool_choice: Literal["auto", "none", "required"] | Choice | None = None
    parallel_tool_calls: bool | None = Field(None, description="Several calls in one reply.")
    response_format: ResponseFormat | None = None
    user: User = None
    metadata: Metadata = None
    store: bool | None = None
    n: int | None = Field(None, description="Only 1 is possible.", ge=1)
    logprobs: bool | None = Field(None, description="Only false is possible.")
    top_logprobs: int | None = Field(None, description="Only 0 is possible.", ge=0)
    modalities: list[str] | None = Field(
        None, description='Only ["text"] is possible.', max_length=16, fail_fast=True
    )
    audio: dict[str, Any] | None = Field(None, description="Not possible.")
    functions: list[Any] | None = Field(None, description="Not possible: use `tools`.")
    function_call: str | dict[str, Any] | None = Field(
        None, description="Not possible: use `tool_choice`."
    )
    web_search_options: dict[str, Any] | None = Field(None, description="Not possible.")


def read_chat(body: object, keep: Keeper, *, continued: bool = False) -> ParsedRequest:
    """What the program asks for; raises `BadRequest`.

    `continued`: the conversation is one we have stored.
    """
    asked = check(ChatCompletionRequest, tame(body))
    _refuse_what_cannot_be_done(asked)
    box = choose(asked.tool_choice, tool_specs(_functions(asked.tools or ())))
    conversation = Conversation("messages", continued=continued)
    for index, message in enumerate(asked.messages):
        _add(message, index, conversation)
    limits = [n for n in (asked.max_completion_tokens, asked.max_tokens) if n is not None]
    return ParsedRequest(
        model=asked.model,
        messages=conversation.messages(keep),
        instructions=conversation.instructions,
        tools=box.tools,
        wishes=Wishes(
            max_output_tokens=min(limits, default=None),
            temperature=asked.temperature,
            top_p=asked.top_p,
            seed=asked.seed,
            presence_penalty=asked.presence_penalty,
            frequency_penalty=asked.frequency_penalty,
            reasoning_effort=asked.reasoning_effort,
            stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ()),
            tool_choice=box.mode,
            tool=box.only,
            parallel_tool_calls=asked.parallel_tool_calls,
            response_format=_format(asked.response_format),
        ),
        stream=asked.stream or False,
        include_usage=(asked.stream_options and asked.stream_options.include_usage) or False,
        store=asked.store or False,
        user=asked.user,
        metadata=asked.metadata or {},
    )


def _refuse_what_cannot_be_done(asked: ChatCompletionRequest) -> None:
    refused = {
        "n": ("Only one reply is given to a request: `n` must be 1.", (asked.n or 1) > 1),
        "logprobs": ("The probabilities of tokens are not given here.", asked.logprobs),
        "top_logprobs": ("The probabilities of tokens are not given here.", asked.top_logprobs),
        "modalities": (
            'Replies are text only: `modalities` must be ["text"].',
            set(asked.modalities or ()) - {"text"},
        ),
        "audio": ("Replies are text only.", asked.audio is not None),
        "functions": ("`functions` is not supported; use `tools`.", asked.functions),
        "function_call": (
            "`function_call` is not supported; use `tool_choice`.",
            asked.function_call is not None,
        ),
        "web_search_options": (
            "`web_search_options` is not supported; the profile has tools of its own.",
            asked.web_search_options is not None,
        ),
    }
    for param, (sentence, is_asked) in refused.items():
        if is_asked:
            raise BadRequest(sentence, param=param, code="unsupported_parameter")


def _functions(tools: list[ChatTool] | tuple[()]) -> Iterator[tuple[str, Function]]:
    for index, tool in enumerate(tools):
        param = f"tools[{index}]"
        if tool.type != "function":
            raise BadRequest(
                f"`{param}`: only tools of the type function are supported.",
                param=f"{param}.type",
                code="unsupported_parameter",
            )
        if tool.function is None:
            raise BadRequest(f"`{param}.function` is missing.", param=f"{param}.function")
        yield param, tool.function


def _format(wanted: ResponseFormat | None) -> dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "json_object"}
    if wanted.json_schema is None:
        param = "response_format.json_schema"
        raise BadRequest(f"`{param}` is missing.", param=param)
    schema = wanted.json_schema.model_dump(by_alias=True, exclude_none=True)
    return {"type": "json_schema", "json_schema": schema}


def _add(message: Message, index: int, conversation: Conversation) -> None:
    where = f"messages[{index}]"
    param = f"{where}.content"
    match message.role:
        case "system" | "developer":
            conversation.instruct(message.content, param=param)
        case "user":
            conversation.ask(message.content, param=param, name=message.name)
        case "assistant":
            content = message.refusal if message.content is None else message.content
            conversation.reply(content, _calls(message, index), param=param, name=message.name)
        case "tool":
            if not message.tool_call_id:
                param = f"{where}.tool_call_id"
                raise BadRequest(f"`{param}` is missing.", param=param)
            conversation.answer(message.tool_call_id, message.content, where=where, param=param)
        case "function":
            call_id = conversation.called(message.name or "")
            if call_id is None:
                raise BadRequest(f"`{where}` answers no call of an earlier message.", param=where)
            conversation.answer(call_id, message.content, where=where, param=param)


def _calls(message: Message, index: int) -> tuple[ToolCall, ...]:
    where = f"messages[{index}]"
    if message.function_call is not None:
        param = f"{where}.function_call"
        return (read_call(f"function_call_{index}", message.function_call, param=param),)
    calls: list[ToolCall] = []
    for number, call in enumerate(message.tool_calls or ()):
        param = f"{where}.tool_calls[{number}]"
        if call.function is None:
            raise BadRequest(
                f"`{param}`: only calls of functions are supported.", param=f"{param}.type"
            )
        calls.append(read_call(call.id, call.function, param=f"{param}.function.arguments"))
    return tuple(calls)
