"""`parley gateway run | status`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import typer

from parley.cli._gateway_words import describe
from parley.cli._shared import asked_profile, chosen_profile, current_profile, fail, print_json
from parley.gateway.home import Silent, holder_of, socket_path
from parley.profiles import Profile, default_profile, profile_scope, scan_profiles
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.cli._host import House

__all__ = ["Greet", "register", "serve"]

# Measured: what a gateway has open besides, with room for connections; and for each profile.
_FILES_BESIDE, _FILES_EACH = 60, 8


class Greet(Protocol):
    """What is said of a gateway when it has started; raises when it is of no use so."""

    def __call__(self, status: Mapping[str, Any], *, keyless: bool) -> str: ...


app = typer.Typer(help="Serve your agents on every surface.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="gateway")


@app.command()
def run(
    port: int | None = typer.Option(
        None, "--port", min=0, max=65535, help="Instead of `gateway.port`; 0: any free one."
    ),
) -> None:
    """Start the gateway and serve until it is stopped (Ctrl-C or SIGTERM)."""
    if port is not None:
        from parley.config.schema import env_name

        os.environ[env_name(("gateway", "port"))] = str(port)
    if sys.stdin is not None and sys.stdin.isatty():
        _offer_model()
    serve(plan)


@app.command()
def status(
    as_json: bool = typer.Option(False, "--json", help="One JSON object."),
) -> None:
    """Tell how the running gateway is."""
    found = asyncio.run(_ask_status())
    if found is None:
        if as_json:
            print_json({"running": False})
            raise typer.Exit(3)
        holder = holder_of(current_profile())
        served = ""
        if holder is not None and holder.kind == "chat":
            served = f": an open chat (process {holder.pid}) serves itself alone"
        fail(f"No gateway is running here{served}; start it with: parley gateway run", code=3)
    if as_json:
        # Here `running` says whether the gateway does; how many turns do has another name.
        print_json({**found, "running": True, "running_turns": found["running"]})
        return
    _say(describe(found))


def serve(plan: Callable[[], House], greet: Greet | None = None) -> None:
    """Run the gateway that is planned until it is stopped."""
    import uvloop

    # What is loaded now stays for good: the collector need not walk it, now or later.
    gc.disable()
    uvloop.run(_run(plan, greet or partial(describe, greeting=True)))


def _offer_model() -> None:
    from parley.cli._model_fetch import offer_missing_model
    from parley.config import load_settings

    with contextlib.suppress(ParleyError):  # what is wrong with the settings is told at the start
        profile = chosen_profile()
        with profile_scope(profile):
            offer_missing_model(profile, load_settings(profile), fetch_unasked=False)


def plan() -> House:
    """Whose gateway it is. One for all does not need the profile that `profile use` chose."""
    from parley.cli._host import plan_gateway
    from parley.config import load_house

    alone = asked_profile() is not None
    named = alone or os.environ.get("PARLEY_PROFILE", "").strip()
    whole_house = not named and load_house().multiplex_profiles
    return plan_gateway(default_profile() if whole_house else chosen_profile(), alone=alone)


def _allow_many_files(profiles: int) -> None:
    """The usual limit is low, and may be raised as far as the system allows."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES_BESIDE + _FILES_EACH * profiles
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        fail(
            f"{profiles} profiles need some {needed} open files, and {allowed} are allowed: raise "
            f"the limit (`ulimit -n {needed}`), or serve fewer with `gateway.profiles`."
        )


async def _run(plan: Callable[[], House], greet: Greet) -> None:
    from parley.cli._host import hosted_gateway

    house = plan()
    _allow_many_files(len(house.profiles))
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with hosted_gateway(house) as gateway:
        gc.freeze()
        gc.enable()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        if house.config.tls.certificate and not (sys.stdin and sys.stdin.isatty()):
            # A service manager's word that a certificate was renewed; files that changed are read
            # again by themselves. From a terminal it means that the terminal is gone.
            loop.add_signal_handler(signal.SIGHUP, lambda: None)
        keyless = not await asyncio.to_thread(_has_keys, house, gateway.profiles)
        _say(greet((await gateway.status()).to_dict(), keyless=keyless))
        await stopped.wait()
        seconds = f"{house.config.drain_seconds:g}"
        _say(f"Stopping; running turns have {seconds} s to finish (again to stop at once).")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, gateway.hurry)
    _say("Stopped.")


def _has_keys(house: House, profiles: Sequence[Profile]) -> bool:
    from parley.config.api_keys import KeyRing

    return KeyRing(lambda: profiles, house.home).has_keys()


async def _ask_status() -> dict[str, Any] | None:
    """Asked at the profile's own socket; one that is not served at any other of its gateway."""
    ours = current_profile()
    for profile in (ours, *(p for p in scan_profiles(report=lambda _: None) if p != ours)):
        found = await _status_at(profile)
        if found is None:
            continue
        if found["home"] == str(ours.home) or any(
            told["name"] == ours.name for told in found["profiles"]
        ):
            return found
    return None


async def _status_at(profile: Profile) -> dict[str, Any] | None:
    from parley.surfaces.terminal.client import Disconnected, TerminalClient

    holder = holder_of(profile)
    if holder is None or holder.kind != "gateway":  # a chat serves terminals, and nothing else
        return None
    try:
        client = await TerminalClient.connect(socket_path(profile))
        try:
            async with asyncio.timeout(10):
                return (await client.status()).status
        finally:
            await client.close()
    except TimeoutError as error:
        raise Silent(profile.home, holder) from error
    except Disconnected:
        return None


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
