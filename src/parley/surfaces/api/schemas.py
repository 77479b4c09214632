"""What the API answers, as JSON schemas: small, written by hand, and tested on real answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

__all__ = ["ANSWERS", "Schema", "ref"]

Schema: TypeAlias = dict[str, Any]


def ref(name: str) -> Schema:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(
    description: str, fields: Mapping[str, Schema], *, maybe: Mapping[str, Schema] | None = None
) -> Schema:
    """`maybe` holds the fields that are not always there."""
    return {
        "type": "object",
        "description": description,
        "properties": {**fields, **(maybe or {})},
        "required": list(fields),
    }


def _or_null(schema: Schema, description: str | None = None) -> Schema:
    told: Schema = {"anyOf": [schema, {"type": "null"}]}
    return told if description is None else {**told, "description": description}


def _list(of: Schema, description: str | None = None) -> Schema:
    told: Schema = {"type": "array", "items": of}
    return told if description is None else {**told, "description": description}


def _one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


_TEXT: Final[Schema] = {"type": "string"}
_FLAG: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Schema] = {"type": "number"}
_TIME: Final[Schema] = {"type": "integer", "description": "Seconds since 1970, in UTC."}
_ANYTHING: Final[Schema] = {"type": "object"}
_NULL: Final[Schema] = {"type": "null"}
_NOTES: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}
_MODEL: Final[Schema] = {"type": "string", "description": "The profile that answered."}
_STATES: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}

_ERROR: Final = _object(
    "What went wrong.",
    {
        "message": {"type": "string", "description": "One sentence for people."},
        "type": _one_of(
            "invalid_request_error",
            "authentication_error",
            "permission_error",
            "rate_limit_error",
            "server_error",
            "upstream_error",
        ),
        "param": _or_null(_TEXT, "The field it is about."),
        "code": _or_null(_TEXT, "One word for programs."),
    },
)

# ── chat completions ──────────────────────────────────────────────────────────────────────────

_FUNCTION: Final = _object(
    "Which function, and with what.",
    {"name": _TEXT, "arguments": {"type": "string", "description": "A JSON object, as text."}},
)
_CHAT: Final[dict[str, Schema]] = {
    "ChatCompletion": _object(
        "The answer to a chat.",
        {
            "id": _TEXT,
            "object": {"const": "chat.completion"},
            "created": _TIME,
            "model": _MODEL,
            "choices": {**_list(ref("ChatChoice")), "minItems": 1, "maxItems": 1},
            "usage": _or_null(ref("ChatUsage"), "Null when nobody counted."),
            "system_fingerprint": _NULL,
        },
    ),
    "ChatChoice": _object(
        "The one answer.",
        {
            "index": {"const": 0},
            "message": ref("ChatReply"),
            "logprobs": _NULL,
            "finish_reason": _one_of("stop", "length", "tool_calls", "content_filter"),
        },
    ),
    "ChatReply": _object(
        "The message that was made.",
        {
            "role": {"const": "assistant"},
            "content": _or_null(_TEXT, "Null when there are only calls."),
            "refusal": _NULL,
        },
        maybe={
            "reasoning_content": {**_TEXT, "description": "What the model thought, if it says so."},
            "tool_calls": _list(ref("ChatReplyCall"), "The calls that you are to make."),
        },
    ),
    "ChatReplyCall": _object(
        "A call that you are to make.",
        {"id": _TEXT, "type": {"const": "function"}, "function": _FUNCTION},
    ),
    "ChatUsage": _object(
        "Tokens, as chat completions count them.",
        {
            "prompt_tokens": _COUNT,
            "completion_tokens": _COUNT,
            "total_tokens": _COUNT,
            "prompt_tokens_details": _object("Of those given.", {"cached_tokens": _COUNT}),
            "completion_tokens_details": _object("Of those made.", {"reasoning_tokens": _COUNT}),
        },
    ),
}

# ── responses ─────────────────────────────────────────────────────────────────────────────────

_ITEM_STATUS: Final = _one_of("in_progress", "completed", "incomplete")
_RESPONSES: Final[dict[str, Schema]] = {
    "Response": _object(
        "What was asked for, and what became of it.",
        {
            "id": _TEXT,
            "object": {"const": "response"},
            "created_at": _TIME,
            "completed_at": _or_null(_TIME),
            "status": _one_of(
                "queued", "in_progress", "completed", "incomplete", "failed", "cancelled"
            ),
            "background": _FLAG,
            "conversation": _or_null(_object("Where it belongs.", {"id": _TEXT})),
            "error": _or_null(_object("Why it failed.", {"code": _TEXT, "message": _TEXT})),
            "incomplete_details": _or_null(
                _object(
                    "Why it ends early.",
                    {"reason": _one_of("max_output_tokens", "content_filter")},
                )
            ),
            "instructions": _or_null(_TEXT),
            "max_output_tokens": _or_null(_COUNT),
            "model": _MODEL,
            "output": _list({"anyOf": [ref("ReasoningItem"), ref("MessageItem"), ref("CallItem")]}),
            "parallel_tool_calls": _FLAG,
            "previous_response_id": _or_null(_TEXT),
            "temperature": _or_null(_NUMBER),
            "text": _object("The form of the text.", {"format": _ANYTHING}),
            "tool_choice": {"anyOf": [_TEXT, _ANYTHING]},
            "tools": _list(_ANYTHING),
            "top_p": _or_null(_NUMBER),
            "truncation": {"const": "disabled"},
            "usage": _or_null(ref("ResponseUsage"), "Null when nobody counted."),
            "user": _or_null(_TEXT),
            "metadata": _NOTES,
        },
    ),
    "ReasoningItem": _object(
        "What the model thought, if it says so.",
        {
            "id": _TEXT,
            "type": {"const": "reasoning"},
            "status": _ITEM_STATUS,
            "summary": _list(_ANYTHING),
            "content": _list(
                _object("A thought.", {"type": {"const": "reasoning_text"}, "text": _TEXT})
            ),
        },
    ),
    "MessageItem": _object(
        "A message that was made.",
        {
            "id": _TEXT,
            "type": {"const": "message"},
            "status": _ITEM_STATUS,
            "role": {"const": "assistant"},
            "content": _list(
                _object(
                    "A piece of text.",
                    {
                        "type": {"const": "output_text"},
                        "text": _TEXT,
                        "annotations": _list(_ANYTHING),
                        "logprobs": _list(_ANYTHING),
                    },
                )
            ),
        },
    ),
    "CallItem": _object(
        "A call that you are to make.",
        {
            "id": _TEXT,
            "type": {"const": "function_call"},
            "status": _ITEM_STATUS,
            "call_id": _TEXT,
            "name": _TEXT,
            "arguments": {"type": "string", "description": "A JSON object, as text."},
        },
    ),
    "Item": _object(
        "What a conversation is made of: a message, a call, or what the call gave.",
        {"id": _TEXT, "type": _TEXT},
    ),
    "Conversation": _object(
        "Where responses are kept together.",
        {
            "id": _TEXT,
            "object": {"const": "conversation"},
            "created_at": _TIME,
            "metadata": _NOTES,
        },
    ),
    "ConversationDeleted": _object(
        "It is gone.",
        {"id": _TEXT, "object": {"const": "conversation.deleted"}, "deleted": {"const": True}},
    ),
    "ItemList": _object(
        "One page of items.",
        {
            "object": {"const": "list"},
            "data": _list(ref("Item")),
            "first_id": _or_null(_TEXT),
            "last_id": _or_null(_TEXT),
            "has_more": _FLAG,
        },
    ),
    "ResponseUsage": _object(
        "Tokens, as responses count them.",
        {
            "input_tokens": _COUNT,
            "input_tokens_details": _object(
                "Of those given.", {"cached_tokens": _COUNT, "cache_write_tokens": _COUNT}
            ),
            "output_tokens": _COUNT,
            "output_tokens_details": _object("Of those made.", {"reasoning_tokens": _COUNT}),
            "total_tokens": _COUNT,
        },
    ),
    "ResponseDeleted": _object(
        "A response that is no more.",
        {"id": _TEXT, "object": {"const": "response"}, "deleted": {"const": True}},
    ),
}

# ── runs ──────────────────────────────────────────────────────────────────────────────────────

_RUNS: Final[dict[str, Schema]] = {
    "Run": _object(
        "A run as it stands.",
        {
            "id": _TEXT,
            "run_id": {"type": "string", "description": "The same, as Hermes names it."},
            "object": {"const": "run"},
            "status": _one_of(
                "queued", "running", "waiting_for_approval", "completed", "failed", "cancelled"
            ),
            "session_id": {"type": "string", "description": "The conversation it belongs to."},
            "model": _MODEL,
            "created_at": _TIME,
            "ended_at": _or_null(_TIME),
            "output": _or_null(_TEXT, "The answer, once there is one."),
            "usage": _or_null(ref("ResponseUsage")),
            "error": _or_null(_ERROR),
            "last_event_id": {**_COUNT, "description": "The number of the last event; 0 is none."},
            "metadata": _NOTES,
        },
        maybe={
            "output_items": _list(
                {"anyOf": [ref("MessageItem"), ref("CallItem")]},
                "When there are calls that you are to make.",
            )
        },
    ),
    "ApprovalAnswer": _object(
        "What was decided.",
        {"id": {"type": "string", "description": "Of the question."}, "allowed": _FLAG},
    ),
}

_VIEWS: Final[dict[str, Schema]] = {
    "Session": _object(
        "A stored conversation.",
        {
            "id": _TEXT,
            "object": {"const": "session"},
            "model": _MODEL,
            "platform": _TEXT,
            "session_id": _or_null(_TEXT, "Its name for `X-Parley-Session-Id`; null with `all`."),
            "title": _or_null(_TEXT),
            "turns": _COUNT,
            "input_tokens": _COUNT,
            "output_tokens": _COUNT,
            "created_at": _TIME,
            "updated_at": _TIME,
            "current": _FLAG,
        },
    ),
    "Job": _object(
        "Something that is planned.",
        {
            "id": _TEXT,
            "object": {"const": "job"},
            "model": _MODEL,
            "platform": _TEXT,
            "text": _TEXT,
            "cron": _or_null(_TEXT),
            "every": _or_null(_NUMBER, "Seconds."),
            "timezone": _TEXT,
            "next_at": _TIME,
        },
    ),
    **{
        f"{name}List": _object(
            "A page of a list.",
            {
                "object": {"const": "list"},
                "data": _list(ref(name)),
                "has_more": _FLAG,
                "next": _or_null(_TEXT, "Send it as `after` for the next page."),
            },
        )
        for name in ("Session", "Job")
    },
}

# ── the server ────────────────────────────────────────────────────────────────────────────────

_SERVER: Final[dict[str, Schema]] = {
    "Model": _object(
        "A profile that can be asked.",
        {
            "id": {"type": "string", "description": "The name of the profile."},
            "object": {"const": "model"},
            "created": _TIME,
            "owned_by": {"const": "parley"},
        },
    ),
    "ModelList": _object(
        "All that this key may ask.", {"object": {"const": "list"}, "data": _list(ref("Model"))}
    ),
    "EmbeddingList": _object(
        "A vector for each text, in their order.",
        {
            "object": {"const": "list"},
            "data": _list(ref("Embedding")),
            "model": {"type": "string", "description": "The embedding model."},
            "usage": _object("Tokens.", {"prompt_tokens": _COUNT, "total_tokens": _COUNT}),
        },
    ),
    "Embedding": _object(
        "The vector of one text.",
        {
            "object": {"const": "embedding"},
            "index": _COUNT,
            "embedding": {
                "anyOf": [_list(_NUMBER), _TEXT],
                "description": "Numbers, or base64 where that was asked for.",
            },
        },
    ),
    "Capabilities": _object(
        "What can be done here, and with this key.",
        {
            "object": {"const": "parley.capabilities"},
            "server": {"const": "parley"},
            "version": _TEXT,
            "model": {"type": "string", "description": "Who answers when nobody is named."},
            "features": _list(_TEXT),
            "scopes": _list(_TEXT, "What this key may do."),
            "limits": _object("What a request may cost.", {"body_bytes": _COUNT}),
            "delivers_later": {"const": False},
        },
    ),
    "Health": _object("The process lives.", {"status": {"const": "ok"}}),
    "Readiness": _object(
        "Whether messages are taken. Only a key with the scope admin is told more.",
        {"ready": _FLAG},
        maybe={
            "degraded": _FLAG,
            "state": _TEXT,
            "version": _TEXT,
            "surfaces": _STATES,
            "profiles": {
                "type": "object",
                "additionalProperties": _object(
                    "A profile.",
                    {
                        "ready": _FLAG,
                        "problems": _list(_TEXT),
                        "starting": _list(_TEXT),
                        "surfaces": _STATES,
                    },
                ),
            },
        },
    ),
    "StreamEvent": _object(
        "One event of a stream.",
        {"data": {"type": "string", "description": "JSON, or `[DONE]`."}},
        maybe={
            "event": {"type": "string", "description": "Its name, where it has one."},
            "id": {"type": "string", "description": "Its number, where it can be gone on from."},
        },
    ),
    "Error": _object("What every refusal and every failure looks like.", {"error": _ERROR}),
}

ANSWERS: Final[dict[str, Schema]] = {**_CHAT, **_RESPONSES, **_RUNS, **_VIEWS, **_SERVER}
"""Each by its name."""
