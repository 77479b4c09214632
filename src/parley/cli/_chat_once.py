"""Ask one thing, print the answer, end. On a terminal the answer is shown as it comes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

from parley.cli._plain import one_line, plain, shown_question
from parley.cli._shared import print_json
from parley.cli._talk import Talk
from parley.surfaces.terminal.wire import About, Accepted, Deliver, Frame, Show, Welcome

if TYPE_CHECKING:
    from parley.config.settings import Settings
    from parley.profiles import Profile

__all__ = ["SPINNER", "ask_once"]

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TAKEN_BACK_WITHIN = 3.0
_TICK = 0.1
_ASKS_EVERY = 20  # ticks
_STOPPED = "The answer was stopped."


async def ask_once(
    profile: Profile, settings: Settings, *, chat: str, text: str, as_json: bool, once: bool
) -> int:
    """The exit code: 0 when there was an answer, 1 when there was none, 128 + N after a signal.

    `once`: the conversation is nobody's but this question's, and ends with it.
    """
    async with Talk(profile, settings, chat=chat, once=once) as talk:
        return await _Question(talk, chat, as_json=as_json, alone=once).ask(text)


class _Question:
    """One question, until it is answered, stopped, or taken back by a signal."""

    def __init__(self, talk: Talk, chat: str, *, as_json: bool, alone: bool) -> None:
        self._talk = talk
        self._chat = chat
        self._as_json = as_json
        self._alone = alone
        self._live = _Live() if sys.stdout.isatty() and not as_json else None
        self._id = ""
        self._turn: int | None = None
        self._denied: set[str] = set()
        self._signal = 0
        self._gone = asyncio.Event()

    async def ask(self, text: str) -> int:
        loop = asyncio.get_running_loop()
        self._id = await self._talk.say(text)
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._interrupt, number)
        following = asyncio.create_task(self._follow())
        beside = [asyncio.create_task(self._tick()), asyncio.create_task(self._gone.wait())]
        try:
            await asyncio.wait([following, *beside], return_when=asyncio.FIRST_COMPLETED)
            return following.result() if following.done() else self._stopped()
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
            for task in (following, *beside):
                task.cancel()
            await asyncio.gather(following, *beside, return_exceptions=True)

    def _interrupt(self, number: int) -> None:
        """The first signal takes the question back at the gateway; the second does not wait."""
        if self._signal:
            self._gone.set()
            return
        self._signal = number
        loop = asyncio.get_running_loop()
        taking_back = loop.create_task(self._talk.take_back(self._id))
        loop.call_later(_TAKEN_BACK_WITHIN, self._gone.set)
        taking_back.add_done_callback(lambda _: None)

    async def _tick(self) -> None:
        """Turn the spinner, and ask now and then whether an answer is still to come."""
        ticks = 0
        while True:
            await asyncio.sleep(_TICK)
            ticks += 1
            if ticks % _ASKS_EVERY == 0:
                await self._talk.ask_about(self._id)
            if self._live is not None:
                away = "" if self._talk.connected else "waiting for the gateway"
                self._live.spin(away)

    async def _follow(self) -> int:
        async for frame in self._talk.frames():
            code = await self._take(frame)
            if code is not None:
                return code
        return 1

    async def _take(self, frame: Frame) -> int | None:
        """The exit code, when this is the end."""
        match frame:
            case Accepted(id=self._id, state="taken back"):
                return self._stopped()
            case Accepted(id=self._id, state="refused" | "rate_limited" as state, why=why):
                return self._fault(why or f"The message was not taken ({state}).")
            case About(id=self._id, state="stopped" | "dropped"):
                return self._stopped()
            case Deliver():
                return await self._deliver(frame)
            case Show():
                return await self._show(frame)
            case Welcome():
                self._turn = None
                if self._live is not None:
                    self._live.reset()
        return None

    async def _deliver(self, reply: Deliver) -> int | None:
        code = None
        if self._id in reply.answers:
            code = self._print(reply)
        elif not self._denied.intersection(reply.answers) and not self._as_json:
            # An earlier reply that nobody was there for.
            if self._live is not None:
                self._live.clear()
            sys.stderr.write(f"(earlier) {plain(reply.text)}\n")
        await self._talk.shown(reply)
        return code

    async def _show(self, show: Show) -> int | None:
        if show.event == "started" and self._id in show.answers:
            self._turn = show.turn
        if show.event == "ended" and show.text == "stopped" and self._id in show.answers:
            return self._stopped()
        is_ours = show.turn == self._turn
        if show.event == "asks" and (is_ours or self._alone):
            # Nobody is there to be asked: whoever wants to allow it opens a chat.
            if self._live is not None:
                self._live.clear()
            sys.stderr.write(f"parley: refused: {shown_question(show.text)}\n")
            self._denied.add(await self._talk.say(f"/deny {show.approval}".strip()))
        elif is_ours and self._live is not None:
            self._live.show(show)
        return None

    def _print(self, reply: Deliver) -> int:
        if reply.kind == "error":
            return self._fault(reply.text)
        if self._as_json:
            told = {"reply": reply.text, "kind": reply.kind, "chat": self._chat}
            print_json({**told, "turn": reply.turn})
        elif self._live is not None:
            self._live.finish(reply.text)
        else:
            sys.stdout.write(reply.text + "\n")  # a file or a pipe gets the words as they are
        sys.stdout.flush()
        return 0

    def _stopped(self) -> int:
        code = self._fault(_STOPPED)
        return 128 + self._signal if self._signal else code

    def _fault(self, sentence: str) -> int:
        if self._live is not None:
            self._live.break_off()
        if self._as_json:
            print_json({"error": sentence})
        else:
            sys.stderr.write(f"parley: {plain(sentence)}\n")
        return 1


class _Live:
    """The answer on a terminal while it is made: words as they come, else a spinner."""

    def __init__(self) -> None:
        self._said = ""
        self._doing = ""
        self._spins = False
        self._moves = os.environ.get("TERM", "") not in ("", "dumb")

    def show(self, show: Show) -> None:
        match show.event:
            case "text":
                self._add(show.text)
            case "reset":
                self.reset()
            case "step":
                self.break_off()
            case "tool":
                self._doing = show.text
            case "tool_done":
                self._doing = ""

    def spin(self, instead: str = "") -> None:
        """The next picture of the spinner; what stands in the line already is left alone."""
        if self._said or not self._moves:
            return
        picture = SPINNER[int(time.monotonic() * 10) % len(SPINNER)]
        width = shutil.get_terminal_size().columns - 4
        what = one_line(instead or self._doing or "thinking", longest=max(width, 1))
        sys.stdout.write(f"\r{picture} {what}…\x1b[K")
        sys.stdout.flush()
        self._spins = True

    def clear(self) -> None:
        """Take the spinner away."""
        if self._spins:
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()
            self._spins = False

    def _add(self, text: str) -> None:
        piece = text if self._said else text.lstrip()
        if not piece:
            return
        self.clear()
        self._said += piece
        # A terminal must not obey what a model says.
        sys.stdout.write(plain(piece))
        sys.stdout.flush()

    def reset(self) -> None:
        if self._said:
            self.break_off()
            sys.stdout.write("(starting again)\n")

    def break_off(self) -> None:
        """End the line that was begun."""
        self.clear()
        if self._said:
            sys.stdout.write("" if self._said.endswith("\n") else "\n")
            sys.stdout.flush()
            self._said = ""

    def finish(self, reply: str) -> None:
        is_shown = bool(self._said) and self._said.strip() == reply.strip()
        self.break_off()
        if not is_shown:
            sys.stdout.write(plain(reply) + "\n")
