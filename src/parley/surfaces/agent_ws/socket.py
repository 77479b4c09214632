"""The WebSocket itself. Imports aiohttp: load it late."""

from __future__ import annotations

import contextlib
from typing import Final

from aiohttp import WSCloseCode, web

from parley.backends.direct import frames
from parley.surfaces.agent_ws.answer import error_frame
from parley.surfaces.api.errors import ApiError

__all__ = ["open_socket"]

_CLOSED_WITHIN: Final = 2.0


class _Socket(web.WebSocketResponse):
    """aiohttp's own, which closes by itself when a frame is too large: the client is told first."""

    async def close(
        self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True
    ) -> bool:
        if code == WSCloseCode.MESSAGE_TOO_BIG and not self.closed:
            details = f"A frame may have {frames.LARGEST_FRAME} bytes at most."
            with contextlib.suppress(ConnectionError, RuntimeError):
                await self.send_json(error_frame("BAD_FRAME", details))
            code = frames.CLOSE_BAD_FRAME
        return await super().close(code=code, message=message, drain=drain)


async def open_socket(request: web.Request, *, heartbeat: float) -> web.WebSocketResponse:
    """The upgraded connection; raises when the request asked for none."""
    socket = _Socket(
        heartbeat=heartbeat,
        max_msg_size=frames.LARGEST_FRAME,
        compress=False,
        timeout=_CLOSED_WITHIN,
    )
    if not socket.can_prepare(request):
        raise ApiError(
            426,
            "Connect here with a WebSocket.",
            code="websocket_required",
            headers={"Upgrade": "websocket", "Connection": "Upgrade"},
        )
    await socket.prepare(request)
    return socket
