"""A remote agent as a backend: each turn is one streamed request to it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from parley.agent.providers.connections import read_last_bytes
from parley.agent.providers.http import encode
from parley.backends.base import Mailbox, Standing, Turn
from parley.backends.proxy.approvals import Approvals
from parley.backends.proxy.client import RemoteServer
from parley.backends.proxy.ending import ending_of
from parley.backends.proxy.faults import FarEnd, ProxyError
from parley.backends.proxy.files import read_files
from parley.backends.proxy.request import (
    DEFAULT_MODEL,
    SESSION_HEADER,
    Files,
    asked_of,
    body_of,
    headers_of,
)
from parley.backends.proxy.result import ProxyResult
from parley.backends.proxy.stream import ApprovalWanted, Happening, RemoteReply, StepOver
from parley.config.settings import Settings
from parley.profiles import Profile
from parley.protocol import (
    REMOTE_AGENT,
    CallDelta,
    ChatMessage,
    Failed,
    Final,
    ParleyError,
    ReasoningDelta,
    StepTaken,
    TurnEvent,
)
from parley.storage.contract import LeaseLost

if TYPE_CHECKING:
    import aiohttp

__all__ = ["ProxyBackend", "proxy_url_of"]

_log = logging.getLogger("parley.proxy")

_KEY = "GATEWAY_PROXY_KEY"
_CAPABILITIES_SECONDS = 5.0
_SAYS_WHAT_IT_IS = frozenset({200, 404, 405})
_HEALTH_SECONDS = 2.0
_HEALTH_KEPT_SECONDS = 5.0


def proxy_url_of(settings: Settings) -> str | None:
    """Where the remote agent is that answers for a profile; None when it answers itself."""
    return settings.gateway.proxy_url


class ProxyBackend:
    """Hands every turn to the agent at `url`. Closing a turn stops the work there as well."""

    def __init__(
        self,
        profile: Profile,
        settings: Settings,
        *,
        url: str,
        secret: Callable[[str], str | None],
    ) -> None:
        self._profile = profile
        self._model = settings.gateway.proxy_model or DEFAULT_MODEL
        self._takes_tools = settings.gateway.proxy_tools
        self._secret = secret
        self._server = RemoteServer(url, silence_seconds=settings.gateway.proxy_timeout_seconds)
        self._features: frozenset[str] | None = None
        self._features_known = False
        self._health: tuple[float, str | None] | None = None

    @property
    def models(self) -> None:
        return None

    @property
    def calibration(self) -> None:
        return None

    def about(self) -> str:
        return FarEnd(self._server.shown).name

    def starting(self) -> tuple[str, ...]:
        return ()

    def start(self, mailbox: Mailbox) -> None:
        return

    def warm(self) -> None:
        return

    def remembers(self, platform: str) -> bool:
        return False

    async def prefix(self, standing: Standing) -> None:
        return None

    async def close(self) -> None:
        await self._server.close()

    async def health(self) -> str | None:
        """What is wrong with the far end in one sentence; None when it answers. Kept a moment."""
        now = asyncio.get_running_loop().time()
        if self._health is None or now - self._health[0] >= _HEALTH_KEPT_SECONDS:
            self._health = (now, await self._ask_health())
        return self._health[1]

    async def answer(self, turn: Turn) -> ProxyResult:
        """The whole of `run(turn)`; empty when the turn is no longer wanted."""
        result = ProxyResult.of(turn)
        try:
            async with aclosing(self.run_into(turn, result)) as events:
                async for _ in events:
                    pass
        except LeaseLost:
            pass
        return result

    async def run(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        async with aclosing(self.run_into(turn, ProxyResult.of(turn))) as events:
            async for event in events:
                yield event

    async def run_into(self, turn: Turn, result: ProxyResult) -> AsyncGenerator[TurnEvent, None]:
        """Run the turn and fill `result` with it; it stays empty unless the turn ends by itself."""
        ended = False
        try:
            async with aclosing(self._events(turn, result)) as events:
                async for event in events:
                    result.take(event)
                    ended = isinstance(event, Final | Failed)
                    yield event
        finally:
            if not ended:
                result.clear()

    # ── one turn ──

    async def _events(self, turn: Turn, result: ProxyResult) -> AsyncGenerator[TurnEvent, None]:
        await turn.check()
        if turn.attempt > 1 and turn.ask is not None:
            await turn.ask.withdraw()  # the far end begins anew, and asks anew
        far = self._far_end()
        try:
            headers = headers_of(turn, key=self._checked_key(far))
            headers[SESSION_HEADER] += await self._branch(turn, headers, far)
            if wanted := await self._untaken(turn, headers, far):
                yield far.untaken(wanted).failed
                return
            asked = asked_of(turn)
            if turn.request is None:
                asked += await turn.steer()
            files = await self._files(turn, asked, headers, far)
            result.asked(asked)
            payload = await self._payload(turn, asked, files)
            if turn.purse is not None:
                refusal = await turn.purse.reserve(
                    "proxy",
                    self._model,
                    prompt_tokens=len(payload) // 3,
                    max_output_tokens=None,
                    now=time.time(),
                )
                if refusal is not None:
                    yield refusal.failed()
                    return
            try:
                response = await self._server.post(
                    "/v1/chat/completions", payload, headers=headers, far=far
                )
            finally:
                self._health = None  # what was found before is old
        except ProxyError as error:
            await turn.check()
            yield error.failed
            return
        async with aclosing(self._follow(turn, response, headers, far)) as events:
            async for event in events:
                if isinstance(event, Final | Failed):
                    await turn.check()
                yield event

    async def _payload(self, turn: Turn, asked: tuple[ChatMessage, ...], files: Files) -> bytes:
        def build() -> bytes:
            return encode(body_of(turn, asked, model=self._model, files=files))

        return await asyncio.to_thread(build) if files.contents else build()

    async def _follow(
        self,
        turn: Turn,
        response: aiohttp.ClientResponse,
        headers: Mapping[str, str],
        far: FarEnd,
    ) -> AsyncGenerator[TurnEvent, None]:
        """Read the answer to its end, whichever that is."""
        reply = RemoteReply()
        lost: ProxyError | None = None

        async def decide(wanted: ApprovalWanted, allowed: bool) -> None:
            await self._decide(reply.run_id, wanted, allowed, headers=headers, far=far)

        approvals = Approvals(turn, decide)
        try:
            while not reply.is_closed:
                try:
                    chunk = await self._server.read(response, far=far, is_over=reply.is_over)
                except ProxyError as error:
                    lost = error
                    break
                for happening in reply.feed(chunk) if chunk else reply.finish():
                    if turn.request is None and isinstance(happening, ReasoningDelta | CallDelta):
                        continue  # for programs alone
                    event = await _event(happening, approvals)
                    if event is not None:
                        yield event
                if not chunk:
                    unsaid = reply.has_begun and not reply.is_over and not reply.is_closed
                    if unsaid and not _has_length(response):
                        lost = far.lost(f"{far.name} closed the connection; try again in a moment")
                    break
            if reply.is_done:
                await read_last_bytes(response.content)
        finally:
            # An unread answer is dropped with its connection: that is what stops the far end.
            response.close()
            await approvals.close()
        ending = ending_of(turn, reply, lost=lost, far=far)
        yield replace(ending, outside=REMOTE_AGENT) if isinstance(ending, Final) else ending

    async def _decide(
        self,
        run_id: str,
        wanted: ApprovalWanted,
        allowed: bool,
        *,
        headers: Mapping[str, str],
        far: FarEnd,
    ) -> None:
        if not run_id:
            self._lose_decision("the far end has not named its run")
            return
        decision = {"approval_id": wanted.id, "decision": "approve" if allowed else "deny"}
        try:
            response = await self._server.post(
                f"/v1/runs/{run_id}/approval",
                encode(decision),
                headers={**headers, "Accept": "application/json"},
                far=far,
            )
        except ProxyError as error:
            self._lose_decision(error.failed.cause)
            return
        await read_last_bytes(response.content)
        response.close()

    def _lose_decision(self, cause: str) -> None:
        _log.warning("decision_lost", extra={"profile": self._profile.name, "cause": cause})

    async def _files(
        self,
        turn: Turn,
        asked: tuple[ChatMessage, ...],
        headers: Mapping[str, str],
        far: FarEnd,
    ) -> Files:
        attachments = [item for message in asked for item in message.attachments]
        others = any(not item.media_type.startswith("image/") for item in attachments)
        if not others:
            others = any(entry.message.attachments for entry in turn.history)
        taken = others and "attachments" in (await self._far_features(headers, far) or ())
        if not attachments:
            return Files(taken=taken)
        return await asyncio.to_thread(read_files, attachments, taken=taken)

    async def _branch(self, turn: Turn, headers: Mapping[str, str], far: FarEnd) -> str:
        """What sets the session apart after `/undo` or `/retry`.

        A far end that is not Parley keeps its own record, and a part of that cannot be taken back.
        """
        if self._features is not None or turn.times_undone is None:
            return ""
        undone = await turn.times_undone()
        if not undone or await self._far_features(headers, far) is not None:
            return ""
        return f"-{undone}"

    async def _untaken(
        self, turn: Turn, headers: Mapping[str, str], far: FarEnd
    ) -> Literal["tools", "response_format"] | None:
        """What the program asks for that the far end would ignore."""
        request = turn.request
        if request is None or self._takes_tools:
            return None
        if not request.tools and request.wishes.response_format is None:
            return None
        features = await self._far_features(headers, far) or frozenset()
        if request.tools and "tools" not in features:
            return "tools"
        if request.wishes.response_format is not None and "response_format" not in features:
            return "response_format"
        return None

    async def _far_features(self, headers: Mapping[str, str], far: FarEnd) -> frozenset[str] | None:
        """What a far end that is Parley can do; None of another one, and while it is not known."""
        if not self._features_known:
            asked = {**headers, "Accept": "application/json"}
            try:
                async with asyncio.timeout(_CAPABILITIES_SECONDS):
                    status, body = await self._server.get(
                        "/v1/capabilities", headers=asked, far=far
                    )
            except (ProxyError, TimeoutError):
                return None
            if status not in _SAYS_WHAT_IT_IS:
                return None
            self._features = _features(body) if status == 200 else None
            self._features_known = True
        return self._features

    # ── who is there ──

    async def _ask_health(self) -> str | None:
        try:
            key = self._secret(_KEY)
        except ParleyError:  # whose work this is, is not known here
            key = None
        far = FarEnd(self._server.shown, key)
        headers = {"Authorization": f"Bearer {key}"} if key and _can_be_key(key) else {}
        try:
            async with asyncio.timeout(_HEALTH_SECONDS):
                for path in ("/healthz", "/v1/models"):
                    status, body = await self._server.get(path, headers=headers, far=far)
                    if status >= 500 or status in {401, 403}:
                        return far.status(status, {}, body).failed.sentence
        except ProxyError as error:
            return error.failed.sentence
        except TimeoutError:
            return (
                f"Proxy connection error: no answer within {_HEALTH_SECONDS:g} s from {far.name}."
            )
        return None

    def _far_end(self) -> FarEnd:
        return FarEnd(self._server.shown, self._secret(_KEY))

    @staticmethod
    def _checked_key(far: FarEnd) -> str | None:
        if far.key and not _can_be_key(far.key):
            raise far.wrong_key()
        return far.key


async def _event(happening: Happening, approvals: Approvals) -> TurnEvent | None:
    match happening:
        case StepOver(text=text):
            return StepTaken((ChatMessage("assistant", text, outside=REMOTE_AGENT),))
        case ApprovalWanted():
            return await approvals.take(happening)
        case _:
            return happening


def _features(body: bytes) -> frozenset[str] | None:
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("server") != "parley":
        return None
    features = said.get("features")
    return frozenset(map(str, features)) if isinstance(features, list) else frozenset()


def _can_be_key(key: str) -> bool:
    return key.isascii() and key.isprintable() and " " not in key


def _has_length(response: aiohttp.ClientResponse) -> bool:
    """Whether its end can be told from a connection that broke."""
    headers = response.headers
    return "Content-Length" in headers or "chunked" in headers.get("Transfer-Encoding", "").lower()
