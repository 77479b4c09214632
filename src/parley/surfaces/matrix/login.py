"""Logging in: finding the homeserver, and the ways by which it lets us in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from parley.config.hosts import is_loopback
from parley.protocol import ParleyError
from parley.surfaces.matrix.connection import MatrixFault
from parley.surfaces.matrix.homeserver import Answer, Homeserver

__all__ = [
    "Grant",
    "by_access_token",
    "by_login_token",
    "by_password",
    "find_homeserver",
    "is_user_id",
    "log_out",
    "ways_in",
    "who_is",
]

_USER: Final = re.compile(r"@[\x21-\x39\x3b-\x7e]+:[A-Za-z0-9.:\[\]-]+")
_NAME: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?")
_ANSWERS_WITHIN: Final = 15.0
_LOGIN: Final = "/_matrix/client/v3/login"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a login gives: a device, and the token by which it speaks."""

    user_id: str
    device_id: str
    access_token: str = field(repr=False)


def is_user_id(text: str) -> bool:
    return len(text) <= 255 and _USER.fullmatch(text) is not None


async def find_homeserver(said: str) -> Homeserver:
    """The homeserver meant by an address, a server's name or a user's id.

    A name leads to it by `.well-known`. Plain http is for this machine alone.
    """
    text = said.strip().rstrip("/")
    if text.startswith("@"):
        text = text.partition(":")[2]
    if "://" in text:
        given = _checked(text)
        if await _speaks(given):
            return given
        text = urlsplit(given.url).netloc
    if not _NAME.fullmatch(text):
        raise ParleyError(
            f"{said.strip()!r} is no homeserver: give its name or its address, such as "
            "matrix.org or https://matrix.example.org."
        )
    host = urlsplit(f"//{text}").hostname or ""
    named = Homeserver(f"{'http' if is_loopback(host) else 'https'}://{text}")
    found = await _well_known(named) or named
    if not await _speaks(found):
        raise ParleyError(
            f"No Matrix homeserver answers at {found.url}; give its address with --homeserver."
        )
    return found


async def ways_in(server: Homeserver) -> frozenset[str]:
    """The kinds of login that it offers, such as `m.login.password`."""
    flows = (await server.call("GET", _LOGIN)).get("flows")
    found = flows if isinstance(flows, list) else []
    return frozenset(str(flow.get("type")) for flow in found if isinstance(flow, dict))


async def by_password(
    server: Homeserver, user: str, password: str, *, device_id: str | None, device_name: str
) -> Grant:
    """Log in; with `device_id`, as the device that we were before."""
    identifier = {"type": "m.id.user", "user": user}
    body = {"type": "m.login.password", "identifier": identifier, "password": password}
    answer = await server.ask("POST", _LOGIN, _with_device(body, device_id, device_name))
    if answer.status == 403 and answer.told.get("errcode") == "M_FORBIDDEN":
        raise MatrixFault(
            f"{server.url} does not accept this password for {user}.",
            status=403,
            code="M_FORBIDDEN",
        )
    return _granted(answer)


async def by_login_token(
    server: Homeserver, token: str, *, device_id: str | None, device_name: str
) -> Grant:
    """Log in with the token that single sign-on ended with."""
    body = {"type": "m.login.token", "token": token}
    return _granted(await server.ask("POST", _LOGIN, _with_device(body, device_id, device_name)))


async def by_access_token(server: Homeserver, token: str) -> Grant:
    """Take over the device that a token belongs to."""
    return Grant(*await who_is(server, token), token)


async def who_is(server: Homeserver, token: str) -> tuple[str, str]:
    """The user and the device of a token."""
    path = "/_matrix/client/v3/account/whoami"
    answer = await server.ask("GET", path, token=token, within=_ANSWERS_WITHIN)
    if answer.status == 401:
        raise MatrixFault(
            f"{server.url} does not accept the access token.",
            status=401,
            code=str(answer.told.get("errcode", "")),
        )
    if answer.status != 200:
        raise answer.fault
    user_id, device_id = answer.told.get("user_id"), answer.told.get("device_id")
    if not isinstance(user_id, str) or not isinstance(device_id, str):
        raise ParleyError(
            "This access token belongs to no device, so it cannot read encrypted rooms; "
            "log in with a password instead."
        )
    return user_id, device_id


async def log_out(server: Homeserver, token: str) -> bool:
    """End the device of a token; False when it had ended already."""
    answer = await server.ask("POST", "/_matrix/client/v3/logout", {}, token=token)
    if answer.status == 401:
        return False
    if answer.status != 200:
        raise answer.fault
    return True


def _with_device(
    body: Mapping[str, object], device_id: str | None, device_name: str
) -> dict[str, object]:
    device = {} if device_id is None else {"device_id": device_id}
    return {**body, **device, "initial_device_display_name": device_name}


def _granted(answer: Answer) -> Grant:
    if answer.status != 200:
        raise answer.fault
    try:
        told = answer.told
        return Grant(str(told["user_id"]), str(told["device_id"]), str(told["access_token"]))
    except KeyError as error:
        raise MatrixFault("The homeserver's answer to the login lacks a part.") from error


def _checked(address: str) -> Homeserver:
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise ParleyError(f"{address!r} is no address of a homeserver: https://… is wanted.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ParleyError(
            f"{address} would carry the password in the clear; give an https address. "
            "Plain http is for this machine alone."
        )
    return Homeserver(f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/"))


async def _speaks(server: Homeserver) -> bool:
    """Whether a homeserver answers there."""
    answer = await server.ask("GET", "/_matrix/client/versions", within=_ANSWERS_WITHIN)
    return answer.status == 200 and isinstance(answer.told.get("versions"), list)


async def _well_known(named: Homeserver) -> Homeserver | None:
    """Where a server's name says that its homeserver is, if it says so."""
    try:
        path = "/.well-known/matrix/client"
        answer = await named.ask("GET", path, within=_ANSWERS_WITHIN, follow=True)
    except MatrixFault:
        return None
    told = answer.told.get("m.homeserver")
    base = told.get("base_url") if isinstance(told, dict) else None
    return _checked(base.rstrip("/")) if answer.status == 200 and isinstance(base, str) else None
