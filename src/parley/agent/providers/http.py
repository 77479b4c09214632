"""The way to a model server: one kept session, JSON objects as they stream in, clear errors."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from parley.agent.providers.base import ProviderError
from parley.agent.providers.connections import (
    kept_session,
    read_at_most,
    read_last_bytes,
    was_closed,
)
from parley.agent.providers.faults import Peer, fault_of_error, fault_of_status
from parley.agent.providers.sse import SseError, SseEvent, SseParser

if TYPE_CHECKING:
    import aiohttp

__all__ = ["DONE", "JsonObject", "ModelServer", "encode"]

JsonObject: TypeAlias = dict[str, Any]

DONE: Final[JsonObject] = {}
"""What `ModelServer.objects` yields last when the server said that the stream is complete."""

_ERROR_BODY_BYTES = 64 * 1024
_WHOLE_ANSWER_BYTES = 16 * 1024 * 1024
_STREAM_BYTES = 128 * 1024 * 1024
_CONNECT_SECONDS = 10.0


def encode(value: object) -> bytes:
    """JSON as it is sent: compact, and the same bytes for the same value."""
    # A lone surrogate, as a terminal may give one, becomes `?` instead of an error.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class ModelServer:
    """One model server. The session is made at the first call and kept until `close`."""

    def __init__(
        self,
        label: str,
        *,
        base_url: str,
        model: str,
        headers: Mapping[str, str],
        key: str | None,
        key_variable: str | None,
        timeout_seconds: float,
    ) -> None:
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(base_url.strip())
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ProviderError(
                f"The address of {label} is not a web address: set "
                f"`providers.{label}.base_url` to one that begins with http:// or https://.",
                kind="refused",
            )
        if parts.username is not None or parts.password is not None:
            raise ProviderError(
                f"The address of {label} holds a name or password: take it out of "
                f"`providers.{label}.base_url` and put the key into .env with `parley setup`.",
                kind="refused",
            )
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise ProviderError(
                f"The key of {label} in {key_variable or 'its settings'} holds a space, a line "
                "break or a character that no key has: set it again with `parley setup`.",
                kind="auth",
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        root = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}"
        self.path = parts.path.rstrip("/")
        self.peer = Peer(label, root + self.path, model, key_variable, key)
        self._query = f"?{parts.query}" if parts.query else ""  # shown nowhere: it may hold a key
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            **headers,
        }
        self._silence_seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None
        self._has_answered = False

    async def objects(self, path: str, payload: bytes) -> AsyncGenerator[JsonObject, None]:
        """Post `payload` and yield each JSON object of the answer, then `DONE` if it was said.

        A server that answers with one whole JSON object instead of a stream gives that object.
        """
        import aiohttp

        response = await self._open(self.peer.address + path + self._query, payload)
        content = response.content
        try:
            head = await self._head(content)
            if head.startswith((b"{", b"[", b"<")):
                yield self._parse((await self._rest(content, head)).decode("utf-8", "replace"))
                yield DONE
                return
            parser = SseParser()
            received = 0
            chunk = head
            while chunk:
                received += len(chunk)
                if received > _STREAM_BYTES:
                    raise self._broken("sent more than any reply can be")
                for event in parser.feed(chunk):
                    if _is_last(event):
                        await read_last_bytes(content)
                        yield DONE
                        return
                    if event.data:
                        yield self._parse(event.data)
                chunk = await content.readany()
            for event in parser.finish():
                if event.data:
                    yield DONE if _is_last(event) else self._parse(event.data)
        except SseError as error:
            raise self._broken("sent an event that is too large") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._fault(error) from error
        finally:
            # An unread answer is dropped with its connection: that is what stops the server.
            response.close()

    def error(self, error: object) -> ProviderError:
        """What an `error` object of this server means."""
        return fault_of_error(self.peer, error)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _open(self, url: str, payload: bytes) -> aiohttp.ClientResponse:
        import aiohttp

        was_used = self._has_answered
        while True:
            try:
                response = await self._get_session().post(url, data=payload, allow_redirects=False)
                break
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                if was_used and was_closed(error):
                    was_used = False
                    continue
                raise self._fault(error) from error
        self._has_answered = True
        if response.status < 300:
            return response
        try:
            body = await read_at_most(response.content, _ERROR_BODY_BYTES)
        except (aiohttp.ClientError, TimeoutError, OSError):
            body = b""  # the status alone says enough
        finally:
            response.close()
        raise fault_of_status(self.peer, response.status, headers=response.headers, body=body)

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            self._session = kept_session(
                self.peer.address,
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    sock_connect=_CONNECT_SECONDS,
                    sock_read=self._silence_seconds or None,
                ),
            )
        return self._session

    async def _head(self, content: aiohttp.StreamReader) -> bytes:
        head = b""
        while not head and not content.at_eof():
            head = (await content.readany()).lstrip()
        if not head:
            raise self._broken("sent an empty answer")
        return head

    async def _rest(self, content: aiohttp.StreamReader, head: bytes) -> bytes:
        rest = await read_at_most(content, _WHOLE_ANSWER_BYTES)
        if len(rest) == _WHOLE_ANSWER_BYTES:
            raise self._broken("sent more than any reply can be")
        return head + rest

    def _parse(self, text: str) -> JsonObject:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            what = "a web page" if text.startswith("<") else "something that is not JSON"
            raise self._broken(f"answered with {what}") from error
        if not isinstance(value, dict):
            raise self._broken("answered with something that is no reply")
        return value

    def _broken(self, what: str) -> ProviderError:
        return ProviderError(
            f"{self.peer.label} {what}; try again, and check "
            f"`providers.{self.peer.label}.base_url` if it stays so.",
            kind="broken",
        )

    def _fault(self, error: Exception) -> ProviderError:
        import aiohttp

        label, address = self.peer.label, self.peer.address
        unreachable = f"Nothing answers at {address} for {label}"
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            sentence = (
                f"The name in {address} is not known for {label}: check it and the network "
                "connection."
            )
            return ProviderError(sentence, kind="unreachable")
        if isinstance(error, aiohttp.ClientSSLError):
            sentence = (
                f"No safe connection to {label} at {address}: its certificate or its TLS is not "
                "as it should be, so check the address and this machine's clock."
            )
            return ProviderError(sentence, kind="unreachable")
        if isinstance(error, aiohttp.ClientConnectorError):
            sentence = (
                f"{unreachable}: start the server there, or choose another with `parley setup`."
            )
            return ProviderError(sentence, kind="unreachable")
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            sentence = (
                f"{unreachable} within {_CONNECT_SECONDS:.0f} s: check the network connection."
            )
            return ProviderError(sentence, kind="timeout")
        if isinstance(error, TimeoutError):
            sentence = (
                f"{label} was silent for {self._silence_seconds:g} s: try again, or raise "
                f"`providers.{label}.timeout_seconds`."
            )
            return ProviderError(sentence, kind="timeout")
        if isinstance(error, ValueError):  # InvalidURL is one
            sentence = f"The address {address} of {label} cannot be used: check its `base_url`."
            return ProviderError(sentence, kind="refused")
        if isinstance(error, aiohttp.ClientResponseError):
            return self._broken("did not answer in HTTP")
        return ProviderError(
            f"{label} closed the connection before its reply was complete; try again in a moment.",
            kind="broken",
        )


def _is_last(event: SseEvent) -> bool:
    return event.data == "[DONE]" or event.event == "message_stop"
