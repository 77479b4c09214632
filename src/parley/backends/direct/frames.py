"""The frames of the direct-agent protocol: JSON objects with a `type`, one in a text message.

Plain agents know `STATUS`, `USER_MESSAGE`, `AGENT_EVENT_TEXT_CHUNK`, `AGENT_EVENT_END`, `ERROR` and
`GRACEFUL_DISCONNECT`. Everything else is said only to a peer that told, in its `STATUS` or its
`HELLO`, that it knows it: see `docs/direct.md`.

The client connects with `?thread_id=<thread key>`, with `Authorization: Bearer <key>` where it has
one, and with `X-Parley-Hops` (as for the API: how many gateways handed it on, at least 1) where it
is a gateway, so that a ring of them ends. The agent says `STATUS` first. A client that knows more
than plain text answers a `STATUS` with capabilities by `HELLO {capabilities}`, before anything
else; one that says no `HELLO` is plain. One message is answered at a time; after `AGENT_EVENT_END`
or `ERROR` the next may come.

A connection that is closed in good order in the midst of an answer (a close frame) means that
nobody wants the answer any more: the work is stopped. One that breaks, or that is closed with the
code 1001 (“going away”: the client itself ends, and will be back), means nothing: the work on a
message with an `id` goes on, and whoever knows `ids` asks for it again.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "APPROVALS",
    "ATTACHMENTS",
    "CALLBACKS",
    "CAPABILITIES",
    "CLOSE_BAD_FRAME",
    "CLOSE_BUSY",
    "CLOSE_LEAVING",
    "CLOSE_NOT_ALLOWED",
    "CLOSE_NO_THREAD",
    "IDS",
    "INSTRUCTIONS",
    "LARGEST_FRAME",
    "PROGRESS",
    "WORKING_SECONDS",
]

# What a peer may know beyond plain text. `STATUS.capabilities` and `HELLO.capabilities` list them.

IDS: Final = "ids"
"""`USER_MESSAGE.id`: the same id is the same message, also after a new connection. It is answered
once; whoever asks again gets the same answer, from its beginning, and questions that are still open
(`APPROVAL_ASKED`) under the same id. Further messages may follow on one connection: only with a
peer that knows `ids` it is kept open between messages. `CANCEL {id}` stops the work on a message,
from any connection of its thread; its answer is an `ERROR` with the code `stopped`, for ever.
`AGENT_EVENT_END` and `ERROR` tell the `id` of a message that has one. `USER_MESSAGE.hops`: how many
gateways handed the message on before, so that two that point at each other find out.
`USER_MESSAGE.outside`: where its text comes from, when whoever sends it did not write it."""

ATTACHMENTS: Final = "attachments"
"""`USER_MESSAGE.attachments`, a list of `{name, media_type, size, data}`, `data` in base64 (the
standard alphabet), and `AGENT_EVENT_FILE` with the same fields beside its `type`: a file that goes
with the answer. Pictures and voice are attachments too."""

INSTRUCTIONS: Final = "instructions"
"""`USER_MESSAGE.instructions`: what the person wants of the agent, and who they are; for the system
prompt."""

APPROVALS: Final = "approvals"
"""`APPROVAL_ASKED {id, question, tool, lasting?}` from the agent, `APPROVAL_ANSWER {id, allowed}`
to it. Only where `lasting` is true may a person allow the same call for longer than once."""

CALLBACKS: Final = "callbacks"
"""`CALLBACK {id, text, attachments?}`: something that ended later, said outside of any answer,
until `CALLBACK_RECEIVED {id}` confirms it; what is not confirmed is said again after the `HELLO`
of the next connection of that thread. `pending` in `AGENT_EVENT_END`, `CALLBACK` and `STATUS`: how
much still runs for the thread or waits to be confirmed, this callback itself not counted."""

PROGRESS: Final = "progress"
"""`AGENT_EVENT_TOOL {name, state: started|finished, ok?, id?}`: what was streamed before a tool
starts is a message of its own. `AGENT_EVENT_RESET`: what was streamed since the last tool call is
withdrawn. `AGENT_EVENT_WORKING`: said every `WORKING_SECONDS` while an answer is made and nothing
else is said, so that a client can tell slow work from none."""

CAPABILITIES: Final = (IDS, ATTACHMENTS, INSTRUCTIONS, APPROVALS, CALLBACKS, PROGRESS)

LARGEST_FRAME: Final = 32 * 1024 * 1024
WORKING_SECONDS: Final = 10.0

# Codes that a connection is closed with.
CLOSE_NO_THREAD: Final = 4400
CLOSE_NOT_ALLOWED: Final = 4401
CLOSE_BAD_FRAME: Final = 4002
CLOSE_BUSY: Final = 4429
CLOSE_LEAVING: Final = 1001
"""Whoever closes with it comes back: in the midst of an answer with an `id` it stops nothing."""
