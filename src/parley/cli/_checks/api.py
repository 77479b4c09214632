"""The API: whether its keys can be read, and whether its address may be opened without any."""

from __future__ import annotations

import time
from collections.abc import Iterator

from parley.cli._checks.finding import Finding, fault, note, ok, quoted
from parley.cli._checks.settings import Ground
from parley.config.api_keys import KeyFile
from parley.config.errors import ConfigError
from parley.config.hosts import is_loopback
from parley.profiles import Profile, scan_profiles

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
    if good:
        return [ok("api", f"{good} {'key lets' if good == 1 else 'keys let'} programs in.")]
    if there:
        what = "no program is let in: every key has expired, or is of a name from before."
        return [note("api", what, f"parley keys create{_of(ground.profile)}")]
    if not is_loopback(host):
        what = f"it is not opened on {host} while there is no key."
        return [fault("api", what, f"parley keys create{_of(ground.profile)}")]
    return [ok("api", "this machine's own key lets programs in; `parley keys local` shows it.")]


def _served(ground: Ground) -> Iterator[Profile]:
    """Whose keys count: in a gateway for all, the keys of all."""
    yield ground.profile
    settings = ground.settings
    if ground.profile.is_default and settings is not None and settings.gateway.multiplex_profiles:
        yield from (p for p in scan_profiles(report=lambda _: None) if not p.is_default)


def _of(profile: Profile) -> str:
    return "" if profile.is_default else f" --profile {profile.name}"
