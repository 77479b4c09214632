"""The API: whether its keys can be read, and whether its address may be opened without any."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from parley.cli._checks.finding import Finding, fault, note, ok, quoted
from parley.cli._checks.gateway import set_gateway
from parley.cli._checks.settings import Ground
from parley.config.api_keys import KeyFile
from parley.config.errors import ConfigError, shown
from parley.config.hosts import is_loopback
from parley.profiles import Profile, scan_profiles
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.config.settings import GatewayConfig

__all__ = ["check_api"]


def check_api(ground: Ground) -> list[Finding]:
    """Who may call. A file of keys that cannot be read counts as keys: nobody is let in then."""
    settings = ground.settings
    found: list[Finding] = []
    there, good, now = 0, 0, time.time()
    for profile in _served(ground):
        file = KeyFile(profile)
        try:
            held = file.keys()
            there += len(held)
            good += sum(key.profile == profile.name and not key.expired(now) for key in held)
        except ConfigError as error:
            aside = quoted(file.path.with_name(file.path.name + ".old"))
            mend = f"mv {quoted(file.path)} {aside} && parley keys create{_of(profile)}"
            found.append(fault("api", str(error), mend))
    if found:
        return found
    if settings is None:
        return [note("api", "not looked at while the settings cannot be used.")]
    host = settings.gateway.host
    if not there and not is_loopback(host):
        what = f"it is not opened on {host} while there is no key."
        return [fault("api", what, f"parley keys create{_of(ground.profile)}")]
    if wrong := _check_exposure(settings.gateway, ground.profile):
        return wrong
    if good:
        return [ok("api", f"{good} {'key lets' if good == 1 else 'keys let'} programs in.")]
    if there:
        what = "no program is let in: every key has expired, or is of a name from before."
        return [note("api", what, f"parley keys create{_of(ground.profile)}")]
    return [ok("api", "this machine's own key lets programs in; `parley keys local` shows it.")]


def _check_exposure(gateway: GatewayConfig, profile: Profile) -> list[Finding]:
    """What keeps it from being served to other machines as the settings want it."""
    from parley.surfaces.api.surface import plain_http_fault
    from parley.surfaces.api.tls import find_certificate

    if (plain := plain_http_fault(gateway.host, gateway)) is not None:
        return [fault("api", plain, set_gateway("host", "127.0.0.1"))]
    try:
        find_certificate(gateway.tls, profile.home)
    except ParleyError as error:
        return [fault("api", str(error))]
    key = gateway.tls.key or gateway.tls.certificate
    file = None if key is None else profile.home / Path(key).expanduser()
    if file is not None and file.stat().st_mode & 0o077:
        what = f"others may read the private key in {shown(file)}."
        return [note("api", what, f"chmod 600 {quoted(file)}")]
    return []


def _served(ground: Ground) -> Iterator[Profile]:
    """Whose keys count: in a gateway for all, the keys of all."""
    yield ground.profile
    settings = ground.settings
    if ground.profile.is_default and settings is not None and settings.gateway.multiplex_profiles:
        yield from (p for p in scan_profiles(report=lambda _: None) if not p.is_default)


def _of(profile: Profile) -> str:
    return "" if profile.is_default else f" --profile {profile.name}"
