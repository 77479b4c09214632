"""A remote agent behind a WebSocket as a backend: each turn is one message of a thread there."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from parley.agent.providers.http import encode
from parley.backends.base import Mailbox, Standing, Turn
from parley.backends.direct.dial import AgentSessionConfig, Dialer
from parley.backends.direct.events import AgentEvent, BadFrame, Callback, End, FileSent, Question
from parley.backends.direct.faults import (
    KEY_VARIABLE,
    OWN_CODES,
    FarAgent,
    PlatformError,
)
from parley.backends.direct.files import keep_sent, keep_what_can_be
from parley.backends.direct.frames import (
    ATTACHMENTS,
    CALLBACKS,
    CAPABILITIES,
    CLOSE_LEAVING,
    IDS,
)
from parley.backends.direct.hope import Hope, is_away, is_gone
from parley.backends.direct.line import Line
from parley.backends.direct.message import (
    Message,
    frame_of,
    message_of,
    refusal_of,
    thread_key_of,
)
from parley.backends.direct.reply import Reply
from parley.backends.direct.threads import Lease, Patience, Threads, Wanted
from parley.backends.proxy.approvals import Approvals
from parley.backends.proxy.files import read_files
from parley.backends.proxy.request import Files
from parley.backends.proxy.stream import ApprovalWanted
from parley.config.settings import Settings
from parley.profiles import Profile, profile_scope
from parley.protocol import REMOTE_AGENT, Failed, Final, ParleyError, ToolCall, TurnEvent

__all__ = ["DirectBackend"]

_log = logging.getLogger("parley.direct")


class DirectBackend:
    """Hands every turn to the agent at `url`. Closing a turn closes its connection."""

    def __init__(
        self,
        profile: Profile,
        settings: Settings,
        *,
        url: str,
        secret: Callable[[str], str | None],
        patience: Patience | None = None,
    ) -> None:
        patience = patience or Patience()
        self._profile = profile
        self._secret = secret
        self._dialer = Dialer(
            AgentSessionConfig(
                url,
                settings.direct.timeout_seconds,
                heartbeat_seconds=patience.heartbeat_seconds,
            ),
            lasting=True,
        )
        # The address may hold a secret in its query.
        address = hashlib.sha256(url.encode()).hexdigest()[:16]
        self._threads = Threads(
            self._dial,
            self._deliver,
            prefix=f"direct:{address}:",
            profile=profile.name,
            patience=patience,
        )
        self._return_seconds = patience.return_seconds
        self._mailbox: Mailbox | None = None
        self._fault: str | None = None
        self._was_there = False
        self._knows_ids = False

    @property
    def models(self) -> None:
        return None

    @property
    def open_lines(self) -> int:
        """How many connections are held between turns."""
        return self._threads.open_lines

    @property
    def calibration(self) -> None:
        return None

    def about(self) -> str:
        return FarAgent(self._dialer.shown).name

    async def health(self) -> str | None:
        """What went wrong the last time; None when it went well, or nothing was tried."""
        return self._fault

    def starting(self) -> tuple[str, ...]:
        return ()

    def start(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        with profile_scope(self._profile):
            self._threads.start(mailbox)

    def warm(self) -> None:
        return

    def remembers(self, platform: str) -> bool:
        return False

    async def prefix(self, standing: Standing) -> None:
        return None

    async def close(self) -> None:
        await self._threads.close()
        await self._dialer.close()

    # ── one turn ──

    async def run(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        await turn.check()
        unsupported = refusal_of(turn)
        if unsupported is not None:
            yield Failed(unsupported, cause="direct: unsupported", kind="unsupported")
            return
        message = message_of(turn)
        if turn.purse is not None:
            refusal = await turn.purse.reserve(
                "direct",
                "agent",
                prompt_tokens=len(message.text + message.prelude) // 3,
                max_output_tokens=None,
                now=time.time(),
            )
            if refusal is not None:
                yield refusal.failed()
                return
        try:
            far = FarAgent(self._dialer.shown, self._secret(KEY_VARIABLE))
            wanted = await self._wanted(turn)
            asking = _Asking(turn, wanted, message, Hope(self._return_seconds))
            asked = await self._ask_patiently(asking)
        except PlatformError as error:
            await turn.check()
            yield self._failed(turn, Reply(FarAgent(self._dialer.shown)), error)
            return
        async with aclosing(self._follow(asking, asked, far)) as events:
            async for event in events:
                if isinstance(event, Final | Failed):
                    await turn.check()
                yield event

    async def _wanted(self, turn: Turn) -> Wanted:
        hops = 1 + (turn.request.hops if turn.request is not None else 0)
        later = turn.async_delivery and self._mailbox is not None
        thread = await thread_key_of(turn)
        return Wanted(thread, turn.session_key, turn.session_id, later=later, hops=hops)

    async def _ask_patiently(self, asking: _Asking) -> tuple[Line, AgentEvent]:
        """Send the message; an agent that was there a moment ago is waited for."""
        while True:
            try:
                asked = await self._ask(asking.turn, asking.wanted, asking.message)
            except PlatformError as error:
                expected = self._was_there or asking.turn.attempt > 1
                again = is_away(error) or (self._knows_ids and is_gone(error))
                if not (expected and again and await asking.hope.after(error)):
                    self._was_there = False
                    raise
            else:
                asking.hope.fulfilled()
                return asked

    async def _ask_again(
        self, asking: _Asking, line: Line, error: PlatformError
    ) -> tuple[Line, AgentEvent] | None:
        """After its answer was torn; only where the same id is the same message."""
        if IDS not in line.known or not is_gone(error):
            return None
        self._threads.drop(line, CLOSE_LEAVING)
        _log.info("agent_awaited", extra={"code": error.code})
        try:
            return await self._ask_patiently(asking) if await asking.hope.after(error) else None
        except PlatformError:
            return None  # what is told is how it began

    async def _ask(self, turn: Turn, wanted: Wanted, message: Message) -> tuple[Line, AgentEvent]:
        """Send the message; the line, and what comes first of the answer."""
        lease = await self._threads.take(wanted)
        try:
            return lease.line, await self._put(turn, lease, message)
        except PlatformError as error:
            self._leave(turn, lease.line)
            # What was open before may have been closed just now. The same id is the same message.
            if not (lease.is_reused and is_gone(error) and IDS in lease.line.known):
                raise
        except BaseException:
            self._leave(turn, lease.line)
            raise
        lease = await self._threads.take(wanted)
        try:
            return lease.line, await self._put(turn, lease, message)
        except BaseException:
            self._leave(turn, lease.line)
            raise

    async def _put(self, turn: Turn, lease: Lease, message: Message) -> AgentEvent:
        line = lease.line
        if turn.attempt > 1 and turn.ask is not None and IDS not in line.known:
            await turn.ask.withdraw()  # the agent begins anew, and asks anew
        files = Files()
        if message.attachments and ATTACHMENTS in line.known:
            files = await asyncio.to_thread(read_files, message.attachments, taken=True)
        elif message.attachments:
            _log.info("files_not_sent", extra={"count": len(message.attachments)})

        def build() -> str:
            return encode(frame_of(message, line.known, files)).decode()

        await line.send_text(await asyncio.to_thread(build) if files.contents else build())
        return await line.next()

    async def _follow(
        self, asking: _Asking, asked: tuple[Line, AgentEvent], far: FarAgent
    ) -> AsyncGenerator[TurnEvent, None]:
        """Read the answer to its end, whichever that is."""
        turn, wanted = asking.turn, asking.wanted
        line, event = asked
        reply = Reply(far)
        questions = _Questions(turn, line)
        ending: Final | Failed | None = None
        is_given_back = False
        try:
            while ending is None:
                try:
                    while not isinstance(event, End):
                        for happening in await self._events(event, reply, questions, far):
                            yield happening
                        event = await line.next(is_excused=questions.are_open)
                    ending = reply.finish(
                        tokens=event.tokens_used,
                        pending=event.pending,
                        is_request=turn.request is not None,
                        later=turn.async_delivery,
                    )
                    await self._threads.give_back(wanted, line, pending=event.pending)
                    is_given_back = True
                    self._fault = None
                except PlatformError as error:
                    again = await self._ask_again(asking, line, error)
                    if again is None:
                        ending = self._failed(turn, reply, error)
                    else:
                        line, event = again
                        questions.goes_on(line)
                        for happening in reply.begin_again():
                            yield happening
        finally:
            if not is_given_back:
                self._leave(turn, line)
            await questions.close()
        yield replace(ending, outside=REMOTE_AGENT) if isinstance(ending, Final) else ending

    async def _events(
        self, event: AgentEvent, reply: Reply, questions: _Questions, far: FarAgent
    ) -> list[TurnEvent]:
        match event:
            case Question():
                asked = await questions.take(event)
                return [] if asked is None else [asked]
            case FileSent():
                try:
                    reply.add(await asyncio.to_thread(keep_sent, self._profile.attachments, event))
                except BadFrame as error:
                    raise far.broken(str(error)) from None
                return []
            case _:
                return reply.take(event)

    def _leave(self, turn: Turn, line: Line) -> None:
        """The work is stopped there, unless this gateway only ends and will ask for it again."""
        leaving = turn.hands is not None and turn.hands.is_leaving()
        self._threads.drop(line, CLOSE_LEAVING if leaving else 1000)

    def _failed(self, turn: Turn, reply: Reply, error: PlatformError) -> Final | Failed:
        if error.code in OWN_CODES:
            self._fault = str(error)
        return reply.fail(error, is_request=turn.request is not None)

    # ── the connection ──

    async def _dial(
        self, wanted: Wanted, take: Callable[[Callback], Awaitable[None]] | None
    ) -> Line:
        known = frozenset(CAPABILITIES) - (frozenset() if take else {CALLBACKS})
        try:
            key = self._secret(KEY_VARIABLE)
            line = await self._dialer.dial(wanted.thread, key=key, hops=wanted.hops)
        except PlatformError as error:
            self._fault = str(error)
            raise
        try:
            await line.tell(known, take=take)
        except BaseException:
            await line.close()
            raise
        self._was_there, self._knows_ids = True, IDS in line.known
        return line

    async def _deliver(self, wanted: Wanted, callback: Callback) -> None:
        """Have something said in its conversation that ended after the answer."""
        if self._mailbox is None:
            raise ParleyError("There is no conversation that this could be said in.")
        files, note = await asyncio.to_thread(
            keep_what_can_be, self._profile.attachments, callback.files
        )
        text = "\n\n".join(filter(None, (callback.text.strip(), note)))
        # The agent counts within a thread; here all callbacks have one room for their names.
        name = hashlib.sha256(f"{wanted.thread}\0{callback.id}".encode(errors="replace"))
        posted = await self._mailbox.post(
            wanted.lane,
            f"direct:{name.hexdigest()}",
            text,
            session=wanted.session,
            attachments=files,
        )
        if not posted:
            _log.info("callback_without_conversation", extra={"lane": wanted.lane})


@dataclass(frozen=True, slots=True)
class _Asking:
    """What one turn asks, and how long it waits for who is not there."""

    turn: Turn
    wanted: Wanted
    message: Message
    hope: Hope


class _Questions:
    """The agent's questions of one turn, put to the person here."""

    def __init__(self, turn: Turn, line: Line) -> None:
        self._line = line
        self._open: set[str] = set()
        self._approvals = Approvals(turn, self._decide)

    def are_open(self) -> bool:
        return bool(self._open)

    def goes_on(self, line: Line) -> None:
        """The agent is to be answered by another line from now on."""
        self._line = line

    async def take(self, asked: Question) -> TurnEvent | None:
        if asked.id in self._open:  # it tells its answer once more
            return None
        self._open.add(asked.id)
        call = ToolCall(asked.id, asked.tool)
        wanted = ApprovalWanted(asked.id, asked.question, call, lasting=asked.lasting)
        return await self._approvals.take(wanted)

    async def close(self) -> None:
        await self._approvals.close()

    async def _decide(self, wanted: ApprovalWanted, allowed: bool) -> None:
        self._open.discard(wanted.id)
        answer = {"type": "APPROVAL_ANSWER", "id": wanted.id, "allowed": allowed}
        try:
            await self._line.send(answer)
        except PlatformError as error:
            _log.warning("decision_lost", extra={"cause": error.code})
