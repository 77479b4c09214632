"""The log of a profile: JSON lines in `<home>/logs/parley.log`, every one of them redacted.

What is logged within a profile's scope goes to that profile's file; all else to the file of the
profile the process was started for. Any room logs with the standard library:
`logging.getLogger(__name__)`, fields by `extra=`.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
import threading
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO

from parley.config.errors import ConfigError, shown
from parley.config.files import make_private_directory
from parley.config.log_lines import JsonLine, WordsLine
from parley.config.redact import Redactor
from parley.profiles import Profile, scoped_profile

__all__ = ["LOG_NAME", "configure_logging", "report_uncaught"]

LOG_NAME: Final = "parley.log"
_LARGEST: Final = 5 * 1024 * 1024
_KEPT: Final = 3

_log = logging.getLogger(__name__)


def configure_logging(
    profile: Profile,
    redactor: Redactor,
    *,
    apart: bool = False,
    level: str = "info",
    console: bool = False,
) -> Path:
    """Send everything this process logs, uncaught errors included, to the profile's log.

    `apart`: what is logged in another profile's scope goes to that one's. Calling it again
    replaces what was set up before. Returns the file.
    """
    make_private_directory(profile.logs)
    file = profile.logs / LOG_NAME
    try:
        private = PrivateLog(file)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(f"Cannot write the log {shown(file)}: {reason}.") from error

    def profile_now() -> str:
        return (scoped_profile() or profile).name

    private.setFormatter(JsonLine(redactor, profile_now))
    handlers: list[logging.Handler] = [_ByProfile(profile, private) if apart else private]
    if console:
        handlers.append(_Console(sys.stderr))
        handlers[-1].setFormatter(WordsLine(redactor, profile_now))
    _take_over(handlers, level)
    sys.excepthook = _on_uncaught
    threading.excepthook = _on_uncaught_in_thread
    sys.unraisablehook = _on_unraisable
    return file


def report_uncaught(error: BaseException) -> str:
    """Log an error that nobody expected; returns the sentence a person gets instead of it."""
    _log.critical("uncaught error", exc_info=error)
    where = next((h.baseFilename for h in logging.root.handlers if isinstance(h, _OURS)), None)
    details = f"; the details are in {shown(Path(where))}" if where else ""
    return f"Something went wrong inside Parley ({type(error).__name__}){details}."


class PrivateLog(logging.handlers.RotatingFileHandler):
    """A bounded log file for its owner alone, which another process may be writing to as well."""

    def __init__(self, file: Path) -> None:
        super().__init__(
            file, maxBytes=_LARGEST, backupCount=_KEPT, encoding="utf-8", errors="backslashreplace"
        )

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None and self._was_moved(self.stream):
            try:
                self.stream.close()
                self.stream = self._open()
            except OSError:
                self.handleError(record)
                return
        super().emit(record)

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        """By what is there already: the line itself is bounded, and is not made twice for this."""
        return self.stream is not None and self.stream.tell() >= self.maxBytes

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk or a line that cannot be made is no reason to show a traceback."""

    def _open(self) -> TextIOWrapper:
        # Without O_NONBLOCK a named pipe in its place would hold everyone up for ever.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(self.baseFilename, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, "a", encoding=self.encoding, errors=self.errors)

    def _was_moved(self, stream: TextIOWrapper) -> bool:
        """Whether another process has rotated the file away from under us."""
        try:
            there, ours = Path(self.baseFilename).stat(), os.fstat(stream.fileno())
        except (OSError, ValueError):
            return True
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)


class _ByProfile(logging.Handler):
    """Hands each record to the log of the profile whose work it tells of."""

    def __init__(self, home: Profile, first: PrivateLog) -> None:
        super().__init__()
        self._home = home
        self._first = first
        self._open: dict[Profile, PrivateLog] = {}

    @property
    def baseFilename(self) -> str:
        return self._first.baseFilename

    def emit(self, record: logging.LogRecord) -> None:
        scope = scoped_profile()
        if scope is None or scope == self._home:
            self._first.handle(record)
        else:
            self._log_of(scope).handle(record)

    def close(self) -> None:
        for log in (self._first, *self._open.values()):
            log.close()
        super().close()

    def _log_of(self, profile: Profile) -> PrivateLog:
        log = self._open.get(profile)
        if log is None:
            if not profile.home.is_dir():
                return self._first  # a home that is gone is not made again for a line
            try:
                make_private_directory(profile.logs)
                log = PrivateLog(profile.logs / LOG_NAME)
            except (ConfigError, OSError):
                return self._first  # its own home cannot be written: that too must be told
            log.setFormatter(self._first.formatter)
            self._open[profile] = log
        return log


class _Console(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:
        """A closed terminal is no reason to show a traceback."""


_OURS: Final = (PrivateLog, _ByProfile)


def _take_over(handlers: list[logging.Handler], level: str) -> None:
    """Every logger speaks through our handlers: another one would write unredacted."""
    named = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]
    for logger in (logging.root, *named):
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            if isinstance(handler, _OURS):
                handler.close()
        logger.propagate = True
    for handler in handlers:
        logging.root.addHandler(handler)
    # What the libraries we use have to debug is not ours, and one answer of theirs is megabytes.
    logging.root.setLevel("INFO" if level.upper() == "DEBUG" else level.upper())
    logging.getLogger("parley").setLevel(level.upper())
    # It has a line for every event of every room.
    logging.getLogger("nio").setLevel(max(logging.WARNING, logging.root.level))
    logging.captureWarnings(True)


def _on_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    sentence = report_uncaught(error.with_traceback(trace))
    sys.stderr.write(f"parley: {sentence}\n")


def _on_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None:
        _log.error("uncaught error in a thread", exc_info=args.exc_value)


def _on_unraisable(args: sys.UnraisableHookArgs) -> None:
    _log.error("error that could not be raised", exc_info=args.exc_value)
