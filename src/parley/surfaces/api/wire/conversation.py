"""The messages of a request, put in order: who said what, and which call a result answers."""

from __future__ import annotations

from dataclasses import dataclass

from parley.agent.providers.calls import parse_arguments
from parley.protocol import ChatMessage, Role, ToolCall
from parley.surfaces.api.wire.body import tame
from parley.surfaces.api.wire.content import ContentReader, Keeper, Said
from parley.surfaces.api.wire.errors import BadRequest
from parley.surfaces.api.wire.models import Content, FunctionCall

__all__ = ["Conversation", "read_call"]


@dataclass(slots=True)
class _Draft:
    """A message whose files are not stored yet."""

    role: Role
    said: Said
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    tool: str | None = None
    name: str | None = None

    def message(self, keep: Keeper) -> ChatMessage:
        return ChatMessage(
            self.role,
            self.said.text,
            tool_calls=self.calls,
            tool_call_id=self.answers,
            tool_name=self.tool,
            attachments=self.said.kept(keep),
            name=self.name or None,
        )


class Conversation:
    """Takes the messages one by one. Nothing is stored before all of them are found good.

    `continued`: what was said before is known to us, so a result may answer a call of then.
    """

    def __init__(self, field: str, *, continued: bool) -> None:
        self._field = field
        self._continued = continued
        self._contents = ContentReader()
        self._instructions: list[str] = []
        self._drafts: list[_Draft] = []
        self._unanswered: dict[str, str] = {}

    @property
    def instructions(self) -> str:
        return "\n\n".join(self._instructions)

    def instruct(self, content: Content | None, *, param: str) -> None:
        text = self._contents.read_text(content, param=param)
        if text.strip():
            self._instructions.append(text)

    def ask(self, content: Content | None, *, param: str, name: str | None = None) -> None:
        if content is None:
            raise BadRequest(f"`{param}` is missing.", param=param)
        self._drafts.append(_Draft("user", self._contents.read(content, param=param), name=name))

    def reply(
        self,
        content: Content | None,
        calls: tuple[ToolCall, ...] = (),
        *,
        param: str,
        name: str | None = None,
    ) -> None:
        said = self._contents.read(content, param=param)
        self._drafts.append(_Draft("assistant", said, name=name))
        for call in calls:
            self.call(call, param=param)

    def call(self, call: ToolCall, *, param: str) -> None:
        """A call that belongs to the reply before it, if there is one."""
        last = self._drafts[-1] if self._drafts else None
        if last is None or last.role != "assistant":
            last = _Draft("assistant", Said())
            self._drafts.append(last)
        if any(call.id == other.id for other in last.calls):
            raise BadRequest(f"`{param}`: two calls have the same id.", param=param)
        self._unanswered.pop(call.id, None)
        self._unanswered[call.id] = call.name
        last.calls = (*last.calls, call)

    def answer(self, call_id: str, content: Content | None, *, where: str, param: str) -> None:
        """The result of a call."""
        said = self._contents.read(content, param=param)
        name = self._unanswered.pop(call_id, None)
        if name is None and not self._continued:
            raise BadRequest(
                f"`{where}` answers no call of an earlier message; send the reply that made the "
                "call as well.",
                param=where,
            )
        self._drafts.append(_Draft("tool", said, answers=call_id, tool=name))

    def called(self, name: str) -> str | None:
        """The id of the last call of that name that has no answer yet."""
        calls = reversed(self._unanswered.items())
        return next((call_id for call_id, called in calls if called == name), None)

    def messages(self, keep: Keeper) -> tuple[ChatMessage, ...]:
        """All of them, their files stored."""
        field = self._field
        if not self._drafts:
            raise BadRequest(f"`{field}` must hold at least one message of a user.", param=field)
        last = self._drafts[-1]
        if last.role == "assistant":
            raise BadRequest(
                f"The last of `{field}` must be of a user or a tool: there is nothing to answer.",
                param=field,
            )
        if last.role == "user" and not last.said.text.strip() and not last.said.files:
            raise BadRequest(
                f"The last of `{field}` is empty: there is nothing to answer.", param=field
            )
        return self.all_messages(keep)

    def all_messages(self, keep: Keeper) -> tuple[ChatMessage, ...]:
        """All of them, whether there is something to answer or not."""
        return tuple(draft.message(keep) for draft in self._drafts)


def read_call(call_id: str, function: FunctionCall, *, param: str) -> ToolCall:
    """A call as a program gives it back."""
    arguments = parse_arguments(function.arguments)
    return ToolCall(call_id, function.name, tame(arguments, param=param))
