"""`parley gateway run | status`."""

from __future__ import annotations

import asyncio
import signal
import sys

import typer

from parley.cli._shared import current_profile, fail, print_json
from parley.gateway.home import Silent, holder_of, socket_path
from parley.gateway.status import GatewayStatus

__all__ = ["register"]

app = typer.Typer(help="Serve your agents on every surface.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="gateway")


@app.command()
def run() -> None:
    """Start the gateway and serve until it is stopped (Ctrl-C or SIGTERM)."""
    import uvloop

    uvloop.run(_run())


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
        fail("No gateway is running here; start it with: parley gateway run", code=3)
    if as_json:
        # Here `running` says whether the gateway does; how many turns do has another name.
        print_json({**found, "running": True, "running_turns": found["running"]})
        return
    sys.stdout.write(_describe(found))


async def _run() -> None:
    from parley.cli._host import hosted_gateway
    from parley.config import load_settings

    profile = current_profile()
    settings = load_settings(profile)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with hosted_gateway(profile, settings, kind="gateway") as gateway:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        _announce(await gateway.status())
        await stopped.wait()
        seconds = f"{settings.gateway.drain_seconds:g}"
        _say(f"Stopping; running turns have {seconds} s to finish (again to stop at once).")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, gateway.hurry)
    _say("Stopped.")


def _announce(status: GatewayStatus) -> None:
    _say(f"Parley {status.version} serves {status.home} (process {status.pid})")
    _say(f"  answers   {status.answered_by}")
    for surface in status.surfaces:
        fault = f"  NOT SERVED: {surface.fault}" if surface.fault else ""
        _say(f"  {surface.platform:<9} {surface.where}{fault}")


async def _ask_status() -> dict[str, object] | None:
    from parley.surfaces.terminal.client import Disconnected, TerminalClient

    profile = current_profile()
    holder = holder_of(profile)
    if holder is None:
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


def _describe(status: dict[str, object]) -> str:
    lines = [
        f"Parley {status['version']} serves {status['home']} (process {status['pid']}), "
        f"{status['state']}, up {_duration(status['uptime_seconds'])}",
        f"  answers   {status['answered_by']}",
        f"  turns     {status['running']} running, {status['queued']} waiting, "
        f"{status['undelivered']} replies on their way",
    ]
    for surface in _records(status["surfaces"]):
        fault = f"  NOT SERVED: {surface['fault']}" if surface["fault"] else ""
        lines.append(f"  {surface['platform']:<9} {surface['where']}{fault}")
    faults = status["faults"]
    lines += [f"  fault     {fault}" for fault in (faults if isinstance(faults, list) else [])]
    for note in _records(status["doubtful"]):
        what = "may not have arrived" if note["state"] == "unsure" else "was refused"
        lines.append(f"  reply {note['id']} {what} ({note['lane']}): {str(note['text'])[:60]}")
    return "\n".join(lines) + "\n"


def _records(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else []


def _duration(seconds: object) -> str:
    total = int(seconds) if isinstance(seconds, int | float) else 0
    hours, minutes = divmod(total // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {total % 60} s"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
