"""All slash commands, and how one is run: its change and its answer are one transaction."""

from __future__ import annotations

import difflib
import logging
import re

from parley.gateway.commands import consent, conversation, info, work
from parley.gateway.commands.base import Command, CommandCall, Reach, Reply
from parley.protocol import InboundMessage, ParleyError
from parley.sessions.policy import is_trigger
from parley.storage.contract import Draft, InboxMessage, Outcome, StoreUnavailable

__all__ = ["COMMANDS", "Commands", "looks_like_command"]

_log = logging.getLogger("parley.commands")

_SHAPE = re.compile(r"/([a-zA-Z][\w-]*)(?:\s+(.*))?\s*\Z", re.DOTALL)
_WORD = re.compile(r"!(yes|no)(?:\s+(.*))?\s*\Z", re.DOTALL | re.IGNORECASE)
_SAME = {"yes": "approve", "no": "deny"}


async def _help(call: CommandCall) -> Reply:
    lines = [
        f"- `/{command.name}{' ' + command.argument if command.argument else ''}` {command.summary}"
        for command in COMMANDS.values()
    ]
    return Reply("\n".join(lines))


COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command("help", "this list", _help),
        Command("new", "start a new conversation", conversation.new, "[TITLE]"),
        Command("stop", "stop the running answer", conversation.stop, "[all]"),
        Command(
            "approve",
            "allow what the running answer asks for; also `!yes`",
            consent.approve,
            "[once|session|always] [ID]",
        ),
        Command("deny", "refuse it; also `!no`", consent.deny, "[ID]"),
        Command("grants", "what you allowed for good", consent.grants, "[revoke NUMBER|all]"),
        Command("safety", "what you are asked about first", consent.safety, "[on|off NAME]"),
        Command("work", "what runs in the background here", work.work, "[stop ID|all]"),
        Command("retry", "take back the last answer and try again", conversation.retry),
        Command("undo", "take back the last question and its answer", conversation.undo),
        Command("title", "name this conversation", conversation.title, "[TITLE]"),
        Command("sessions", "list earlier conversations", conversation.sessions),
        Command("resume", "go back to one of them", conversation.resume, "NUMBER"),
        Command("model", "see or choose who answers", info.model, "[PROVIDER [MODEL]]"),
        Command("status", "what is going on", info.status),
        Command("usage", "tokens used in this conversation", info.usage),
    )
}


def looks_like_command(text: str) -> bool:
    """`/word …`, and not a path such as `/etc/hosts`; or `!yes`, `!no`."""
    said = text.strip()
    return (_SHAPE.match(said) or _WORD.match(said)) is not None


class Commands:
    """Runs commands for one profile."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._sessions = reach.sessions
        self._store = reach.store
        self._lanes = reach.lanes
        self._deliveries = reach.deliveries

    async def recover(self) -> None:
        """Answer commands that were accepted before the gateway ended."""
        for lane, accepted in await self._store.pending_commands():
            await self.run(lane, accepted)

    async def run(self, lane: str, accepted: InboxMessage) -> None:
        source = accepted.message.source
        reply = await self._reply(lane, accepted)
        outcomes: list[Outcome] = []

        def draft(outcome: Outcome) -> Draft:
            outcomes.append(outcome)
            return Draft(
                dedupe=f"command:{accepted.id}",
                source=source,
                text=reply.render(outcome),
                kind="notice",
                answers=(accepted.message.event_id,),
                handover=self._deliveries.knows_repeats(source),
            )

        leased = await self._store.answer(
            lane, accepted.id, reply.effect, draft, owner=self._lanes.owner
        )
        for outcome in outcomes:
            if outcome.stopped is not None:
                self._lanes.cancel(lane, outcome.stopped)
            if reply.then is not None:
                reply.then(outcome)
        self._lanes.look_again()
        self._deliveries.hand_over(leased or [], source.platform)

    async def _reply(self, lane: str, accepted: InboxMessage) -> Reply:
        name, argument = self._read(accepted.message)
        session = await self._store.session_of(lane)
        if not name or session is None:
            return Reply("That is no command; `/help` lists them.")
        command = COMMANDS.get(name)
        if command is None:
            return Reply(_unknown(name))
        call = CommandCall(
            argument=argument,
            lane=lane,
            source=accepted.message.source,
            session=session,
            running=self._lanes.turn_of(lane),
            reach=self._reach,
        )
        try:
            return await command.run(call)
        except StoreUnavailable:
            raise
        except ParleyError as error:
            return Reply(str(error))
        except Exception:  # noqa: BLE001 - supervisor: else it would be met again at every start
            _log.exception("command_failed", extra={"command": name, "lane": lane})
            return Reply("That command failed inside Parley; the log has the details.")

    def _read(self, message: InboundMessage) -> tuple[str, str]:
        """The command's name and what follows it; a trigger of this profile is `/new`."""
        text = message.text.strip()
        if is_trigger(self._sessions.policy(message.source.platform), text):
            return "new", ""
        shape = _SHAPE.match(text) or _WORD.match(text)
        if shape is None:
            return "", ""
        name = shape[1].lower()
        return _SAME.get(name, name), (shape[2] or "").strip()


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    meant = f" Did you mean `/{near[0]}`?" if near else ""
    return f"There is no command `/{name}`.{meant} `/help` lists them."
