"""The `parley` command: one file a verb, and only the verb that is asked for is loaded."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from parley.cli._open_files import secure_open_files
from parley.protocol import ParleyError

if TYPE_CHECKING:
    import typer
    from typer.core import TyperGroup

__all__ = ["VERBS", "build_command", "run"]

VERBS = (
    *("chat", "setup", "doctor", "status", "gateway", "model", "tools", "config", "sessions"),
    *("profile", "keys", "people", "memory", "matrix", "agent", "audit"),
)
_COMPLETION = "_PARLEY_COMPLETE"


def run(arguments: Sequence[str]) -> None:
    """Run one command. Whatever goes wrong becomes one sentence and an exit code."""
    secure_open_files()
    completing = _COMPLETION in os.environ
    if not completing and _is_bare(arguments) and _at_terminal():
        arguments = [*arguments, "chat"]
    verb = _verb(arguments)
    _tolerate_odd_terminals()
    if verb is not None and verb not in VERBS and not completing:
        _fail(_unknown(verb), code=2)
    try:
        try:
            verbs = (verb,) if verb in VERBS and not completing else VERBS
            _call(build_command(verbs), arguments)
        finally:
            # Here, and not when Python ends: nobody could say anything about it any more.
            sys.stdout.flush()
    except ParleyError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        # Nobody reads any more; keep Python from saying so when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except Exception as error:  # noqa: BLE001 - the outermost supervisor: no traceback for people
        _fail(_unexpected(error))


def _call(command: TyperGroup, arguments: Sequence[str]) -> None:
    """A mistake on the command line is one sentence too."""
    import typer

    from parley.cli._usage_errors import UsageError, usage_sentence

    try:
        code = command(args=list(arguments), prog_name="parley", standalone_mode=False)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{error.format_message()}\n")
            raise SystemExit(error.exit_code) from None
        _fail(usage_sentence(error), code=2)
    except typer.Abort:
        _fail("Stopped.")
    if isinstance(code, int) and code:
        raise SystemExit(code)


def build_command(verbs: Sequence[str]) -> TyperGroup:
    """The command with these verbs, each of which takes `--profile`."""
    from typer.core import TyperGroup
    from typer.main import get_command

    from parley.cli._profile_option import add_everywhere

    command = get_command(build_app(verbs))
    assert isinstance(command, TyperGroup)
    add_everywhere(command)
    return command


def _verb(arguments: Sequence[str]) -> str | None:
    """The first word, behind no other option than `--profile`."""
    words = iter(arguments)
    for word in words:
        if word == "--profile":
            next(words, None)
        elif not word.startswith("--profile="):
            return None if word.startswith("-") else word
    return None


def _is_bare(arguments: Sequence[str]) -> bool:
    """Whether nothing is asked for but perhaps a profile."""
    match list(arguments):
        case [] | ["--profile", _]:
            return True
        case [only]:
            return only.startswith("--profile=")
        case _:
            return False


def _at_terminal() -> bool:
    streams = (sys.stdin, sys.stdout)
    return all(stream is not None and stream.isatty() for stream in streams)


def build_app(verbs: Sequence[str]) -> typer.Typer:
    """The verbs themselves."""
    import typer

    from parley import __version__

    app = typer.Typer(
        name="parley",
        help="Your AI agents in the chats you already use.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def version(asked: bool) -> None:
        if asked:
            sys.stdout.write(f"parley {__version__}\n")
            raise typer.Exit

    @app.callback()
    def options(
        version: bool = typer.Option(
            False, "--version", "-V", callback=version, is_eager=True, help="Show the version."
        ),
    ) -> None: ...

    for verb in verbs:
        import_module(f"parley.cli.{verb}").register(app)
    return app


def _unknown(verb: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(verb, VERBS, n=1)
    meant = f"did you mean `parley {near[0]}`?" if near else f"there are {', '.join(VERBS)}."
    return f"There is no verb {verb!r}; {meant}"


def _unexpected(error: Exception) -> str:
    """Put the details into the log, where there is a home for one; returns what to say."""
    import logging

    from parley.config.logs import report_uncaught

    if not logging.root.handlers:
        from parley.cli._host import start_log
        from parley.cli._shared import current_profile

        # Without any handler Python would print the traceback itself.
        logging.root.addHandler(logging.NullHandler())
        with contextlib.suppress(ParleyError, OSError, RuntimeError):
            profile = current_profile()
            if profile.home.is_dir():
                start_log(profile, level="info")
    return report_uncaught(error)


def _tolerate_odd_terminals() -> None:
    """A character that cannot be shown becomes another one; a closed stream takes everything."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(sentence: str, *, code: int = 1) -> NoReturn:
    sys.stderr.write(f"parley: {sentence}\n")
    raise SystemExit(code)
