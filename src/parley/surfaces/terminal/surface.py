"""The gateway's end of the terminal: a Unix socket that only the owner may open."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from parley.gateway.intake import FrontDoor, Stopping
from parley.gateway.live import LiveEvent, TurnEnded, TurnStarted
from parley.protocol import (
    ApprovalAsked,
    InboundMessage,
    ParleyError,
    SessionSource,
    StepTaken,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolStarted,
)
from parley.storage.contract import Delivery
from parley.surfaces.base import NotSent, Surface, Unreachable
from parley.surfaces.terminal.wire import (
    LONGEST_LINE,
    About,
    Accepted,
    Ack,
    AskAbout,
    AskStatus,
    BadFrame,
    Deliver,
    Frame,
    Hello,
    Problem,
    Say,
    Show,
    Status,
    TakeBack,
    Welcome,
    decode,
    encode,
)

__all__ = ["TerminalSurface"]

_log = logging.getLogger("parley.terminal")

_SHOWN_WITHIN = 10.0
_MOST_UNREAD = 4 * 1024 * 1024
_TELLING = ("command", "path", "url", "query", "pattern", "goal", "name", "action")
_LONGEST_TOLD = 60
_MOST_RECALLED = 4000


class TerminalSurface(Surface):
    """Serves terminals. A conversation may be open in several of them; all see the same."""

    platform = "terminal"
    knows_repeats = True
    can_ask = True
    shows_questions = True
    vouches = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server: asyncio.Server | None = None
        self._door: FrontDoor | None = None
        self._open: dict[str, set[_Connection]] = {}
        self._connections: set[_Connection] = set()
        self._acks: dict[int, asyncio.Future[None]] = {}
        self._numbers = itertools.count(1)
        self._numbered: dict[tuple[str | None, int], int] = {}

    @property
    def where(self) -> str:
        return "parley chat"

    async def start(self, door: FrontDoor) -> None:
        self._door = door
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o177)
        try:
            # Whoever starts a surface holds the home's lock: a socket there is a dead one's.
            self._path.unlink(missing_ok=True)
            listener.bind(str(self._path))
        except OSError as error:
            listener.close()
            reason = error.strerror or error
            raise ParleyError(f"The socket {self._path} cannot be made ({reason}).") from error
        finally:
            os.umask(old)
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listener, limit=LONGEST_LINE
        )

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in tuple(self._connections):
            connection.close()
        self._path.unlink(missing_ok=True)

    async def send(self, delivery: Delivery) -> str | None:
        chat = delivery.source.chat_id
        terminals = self._open.get(chat)
        # Profiles that share this terminal count their replies each by itself; here each is apart.
        name = (delivery.source.profile, delivery.id)
        if not terminals:
            self._numbered.pop(name, None)
            raise Unreachable("No terminal has this conversation open.")
        shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        number = self._numbered.get(name) or next(self._numbers)
        self._numbered[name] = number
        self._acks[number] = shown
        frame = Deliver(
            delivery=number,
            key=f"{delivery.source.profile}:{delivery.dedupe}",
            kind=delivery.kind,
            text=delivery.text,
            answers=delivery.answers,
            turn=delivery.turn,
        )
        for terminal in tuple(terminals):  # one that is let go leaves the set
            terminal.put(frame)
        try:
            async with asyncio.timeout(_SHOWN_WITHIN):
                await shown
        except TimeoutError as error:
            raise NotSent("No terminal confirmed it.", after=1.0) from error
        finally:
            self._acks.pop(number, None)
        del self._numbered[name]
        return None

    async def show(self, event: LiveEvent) -> None:
        terminals = self._open.get(event.source.chat_id)
        frame = _as_frame(event) if terminals else None
        if terminals and frame is not None:
            for terminal in tuple(terminals):
                terminal.put(frame)

    def shown(self, delivery: int) -> None:
        waiting = self._acks.get(delivery)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def join(self, chat: str, connection: _Connection) -> None:
        self._open.setdefault(chat, set()).add(connection)

    def leave(self, chat: str, connection: _Connection) -> None:
        terminals = self._open.get(chat, set())
        terminals.discard(connection)
        if not terminals:
            self._open.pop(chat, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The supervisor of one connection."""
        door = self._door
        if door is None or not _is_owner(writer):
            writer.close()
            return
        connection = _Connection(self, door, reader, writer)
        self._connections.add(connection)
        try:
            await connection.serve()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections.discard(connection)
            connection.close()


class _Connection:
    """One terminal."""

    def __init__(
        self,
        surface: TerminalSurface,
        door: FrontDoor,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._surface = surface
        self._door = door
        self._reader = reader
        self._writer = writer
        self._source: SessionSource | None = None
        self._once = False

    def put(self, frame: Frame) -> None:
        """Write without waiting; a terminal that stops reading is let go."""
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            self.close()
            return
        self._writer.write(encode(frame))

    def close(self) -> None:
        if self._source is not None:
            self._surface.leave(self._source.chat_id, self)
            self._source = None
        self._writer.close()

    async def serve(self) -> None:
        while not self._writer.is_closing():
            try:
                line = await self._reader.readline()
            except ValueError:
                self.put(Problem("That message is too long."))
                return
            if not line:
                return
            try:
                await self._take(decode(line))
            except BadFrame as error:
                self.put(Problem(str(error)))

    async def _take(self, frame: Frame) -> None:
        match frame:
            case Hello(chat=chat, user=user, once=once):
                self._once = once
                await self._hello(chat, user)
            case Say(id=number, text=text):
                self.put(await self._say(number, text))
            case TakeBack(id=number):
                await self._take_back(number)
            case AskAbout(id=number):
                self.put(About(number, await self._state_of(number)))
            case Ack(delivery=delivery):
                self._surface.shown(delivery)
            case AskStatus():
                self.put(Status((await self._door.status()).to_dict()))
            case _:
                self.put(Problem("That frame goes the other way."))

    async def _hello(self, chat: str, user: str) -> None:
        if self._source is not None:
            self._surface.leave(self._source.chat_id, self)
        self._source = SessionSource(
            platform=self._surface.platform,
            chat_id=chat,
            user_id="owner",
            user_name=user or None,
        )
        about = self._door.introduce(self._source)
        welcome = Welcome(about.version, about.answered_by, about.pid, about.profile)
        waiting: Sequence[tuple[int, ApprovalAsked]] = ()
        with contextlib.suppress(ParleyError):  # nothing is known of it just now
            door = self._door.to(about.profile)
            if not self._once and (recent := await door.recent(self._source)) is not None:
                title, asked, answered = recent.title, recent.asked, recent.answered
                welcome = replace(
                    welcome,
                    title=title,
                    asked=asked[-_MOST_RECALLED:],
                    answered=answered[-_MOST_RECALLED:],
                    stopped=recent.stopped,
                )
            waiting = door.asked(self._source)
        self.put(welcome)
        self._surface.join(chat, self)
        for turn, question in waiting:
            self.put(_asks(turn, question))
        with contextlib.suppress(ParleyError):  # whoever answers here may not be served just now
            await self._door.back(self._source)

    async def _say(self, number: str, text: str) -> Accepted:
        if self._source is None:
            return Accepted(number, "refused", "Say hello first.")
        text = self._as_answer(text)
        message = InboundMessage(self._source, text, event_id=number, later=not self._once)
        try:
            receipt = await self._door.admit(message)
        except Stopping as error:
            return Accepted(number, "later", str(error))
        except ParleyError as error:
            return Accepted(number, "refused", str(error))
        return Accepted(number, receipt.state)

    def _as_answer(self, text: str) -> str:
        """A plain yes or no is for the question that waits, if one does."""
        command = _answer_in(text)
        if command is None or self._source is None:
            return text
        with contextlib.suppress(ParleyError):
            if self._door.to(self._door.introduce(self._source).profile).asked(self._source):
                return command
        return text

    async def _take_back(self, number: str) -> None:
        if self._source is not None:
            with contextlib.suppress(ParleyError):  # its profile may not be served just now
                await self._door.take_back(self._source, number)
        self.put(Accepted(number, "taken back"))

    async def _state_of(self, number: str) -> str:
        if self._source is None:
            return ""
        try:
            door = self._door.to(self._door.introduce(self._source).profile)
            message = door.bind(InboundMessage(self._source, "", event_id=number))
            found = await door.rows.turn_result(door.named(message)[1])
        except ParleyError:  # nothing is known just now; it may be asked again
            return ""
        return "" if found is None else found.state


def _as_frame(live: LiveEvent) -> Show | None:
    match live.event:
        case TurnStarted(resumed=resumed):
            again = "resumed" if resumed else ""
            return Show(live.turn, "started", again, answers=live.answers)
        case TextDelta(text=text):
            return Show(live.turn, "text", text)
        case TextReset():
            return Show(live.turn, "reset")
        case StepTaken():
            return Show(live.turn, "step")
        case ToolStarted(call=call):
            return Show(live.turn, "tool", _told(call))
        case ToolFinished(call=call, ok=ok):
            return Show(live.turn, "tool_done", _told(call), ok)
        case ApprovalAsked():
            return _asks(live.turn, live.event)
        case TurnEnded(goes_on=True):
            return Show(live.turn, "ended", "set aside", answers=live.answers)
        case TurnEnded(stopped=stopped):
            how = "stopped" if stopped else ""
            return Show(live.turn, "ended", how, answers=live.answers)
        case _:
            return None


def _asks(turn: int, asked: ApprovalAsked) -> Show:
    apart = "\n\n" if "\n" in asked.question else " "
    told = f"{asked.question}{apart}(`yes` or `no`; `{asked.id}`)"
    return Show(turn, "asks", told, approval=asked.id)


def _answer_in(text: str) -> str | None:
    """The command that a plain answer stands for."""
    match text.casefold().split():
        case ["yes" | "y", *scope] if not scope or scope in (["once"], ["session"], ["always"]):
            return " ".join(["/approve", *scope])
        case ["no" | "n"]:
            return "/deny"
        case _:
            return None


def _told(call: ToolCall) -> str:
    """A call in a few words: the tool, and the beginning of what it is used on."""
    found = (call.arguments.get(name) for name in _TELLING)
    what = next((value for value in found if isinstance(value, str) and value.strip()), "")
    flat = "".join(each if each.isprintable() else " " for each in " ".join(what.split()))
    short = flat if len(flat) <= _LONGEST_TOLD else flat[: _LONGEST_TOLD - 1] + "…"
    return f"{call.name} {short}".strip()


def _is_owner(writer: asyncio.StreamWriter) -> bool:
    """The socket's mode keeps others out; where the kernel tells who calls, ask it as well."""
    peer = writer.get_extra_info("socket")
    if peer is None or not hasattr(socket, "SO_PEERCRED"):
        return True
    with contextlib.suppress(OSError):
        size = struct.calcsize("3i")
        _, uid, _ = struct.unpack(
            "3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        )
        return bool(uid == os.getuid())
    return False
