"""The one redaction: what must not be read in a log, an error or a dump becomes `[redacted]`."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias
from urllib.parse import quote, quote_plus

from parley.config.env import OPTIONAL_ENV_VARS, looks_secret

__all__ = ["MASK", "Plain", "Redactor", "secret_values"]

MASK: Final = "[redacted]"

Plain: TypeAlias = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None

# Shorter values would black out ordinary words, and are no secrets worth the name.
_SHORTEST = 4
_DEEPEST = 32

_NAMES = (
    r"(?:api[_-]?key|access[_-]?key|private[_-]?key|secret|passw(?:or)?d|passphrase|token"
    r"|authorization|cookie)"
)
_VALUE = r"[^\s&\"'<>,;}\])]+"
# Each is a shape that is a secret wherever it stands; group `keep` is what may be read of it.
_SHAPES = re.compile(
    r"|".join(
        (
            r"(?P<url>://)[^\s/?#@\"'<>]+(?=@)",
            r"(?P<scheme>\b(?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}",
            # A quote may be escaped, as in JSON that is held in JSON.
            rf"(?P<quoted>(?i:{_NAMES})\\*[\"']?\s*(?:=>|[=:])\s*)"
            r"\\*(?:\"[^\"\n]+\"|'[^'\n]+')",
            rf"(?P<named>(?i:{_NAMES})\\*[\"']?\s*(?:=>|[=:])\s*\\*[\"']?"
            rf"(?:(?i:bearer|basic|token)\s+)?){_VALUE}",
            rf"(?P<query>(?<![\w-])(?i:key|sig|signature|auth|pwd)=){_VALUE}",
            r"\bsk-[A-Za-z0-9_-]{6,}",
            r"\bxox[a-z]-[A-Za-z0-9-]{6,}",
            r"\bxapp-[A-Za-z0-9-]{6,}",
            r"\bgh[pousr]_[A-Za-z0-9]{16,}",
            r"\bgithub_pat_\w{16,}",
            r"\bAIza[A-Za-z0-9_-]{20,}",
            r"\bsyt_\w{6,}",
            r"\b\d{6,12}:[A-Za-z0-9_-]{30,}",
            r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*",
        )
    )
)
# Every shape has one of these in it; most texts have none, and this is much the quicker look.
_HINT = re.compile(r"[=:_-]|AIza|eyJ|[Bb][Ee][Aa][Rr][Ee][Rr]|[Bb][Aa][Ss][Ii][Cc]")
_SECRET_FIELD = re.compile(rf"(?:^|[_\-.]){_NAMES}$|^key$", re.IGNORECASE)


class Redactor:
    """Knows the secrets of this process by value, and others by their shape."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._known: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Know more secrets from now on."""
        fresh = {value for value in secrets if len(value.strip()) >= _SHORTEST} - self._secrets
        if not fresh:
            return
        self._secrets |= fresh
        forms = {form for value in self._secrets for form in _forms(value)}
        # The longest first: a secret that begins with another one goes as a whole.
        self._known = re.compile("|".join(map(re.escape, sorted(forms, key=_longest_first))))

    def known(self, text: str) -> str:
        """The text without the secrets that are known by value; else as it stands."""
        return text if self._known is None else self._known.sub(MASK, text)

    def text(self, text: str) -> str:
        """The text without any secret in it."""
        text = self.known(text)
        return _SHAPES.sub(_keep, text) if _HINT.search(text) else text

    def value(self, value: object) -> Plain:
        """Any value as plain data without any secret in it, however deep."""
        return self._plain(value, _DEEPEST)

    def exception(self, error: BaseException) -> str:
        """The error with its traceback and causes, without any secret in it."""
        return self.text("".join(traceback.format_exception(error)))

    def _plain(self, value: object, depth: int) -> Plain:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(str(value))
        if isinstance(value, int | float):
            number = repr(value)
            return value if self._unknown(number) else MASK
        if isinstance(value, bytes | bytearray):
            return self.text(bytes(value).decode("utf-8", "backslashreplace"))
        if isinstance(value, BaseException):
            return self.text(f"{type(value).__name__}: {_said(value)}")
        if depth == 0:
            return "…"
        if isinstance(value, Mapping):
            return {
                self.text(_said(name)): self._field(_said(name), item, depth - 1)
                for name, item in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self._plain(item, depth - 1) for item in value]
        return self.text(_said(value))

    def _field(self, name: str, value: object, depth: int) -> Plain:
        if value is None or value is True or value is False or value == "":
            return self._plain(value, depth)
        return MASK if _SECRET_FIELD.search(name) else self._plain(value, depth)

    def _unknown(self, text: str) -> bool:
        return self._known is None or self._known.search(text) is None


def secret_values(environ: Mapping[str, str]) -> set[str]:
    """The values of those variables whose names say that they hold a secret.

    A name can mislead, so a short word such as `true` does not count.
    """
    return {
        value
        for name, value in environ.items()
        if looks_secret(name) and (len(value.strip()) >= 8 or name in OPTIONAL_ENV_VARS)
    }


def _forms(secret: str) -> set[str]:
    """A secret as it stands, and as JSON, a URL or `repr` would write it."""
    stripped = secret.strip()
    return {
        form
        for value in (secret, stripped)
        for form in (
            value,
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
            repr(value)[1:-1],
            quote(value, safe="", errors="replace"),
            quote(value, errors="replace"),
            quote_plus(value, errors="replace"),
        )
    }


def _longest_first(form: str) -> tuple[int, str]:
    return (-len(form), form)


def _keep(match: re.Match[str]) -> str:
    kept = next((part for part in match.groups() if part is not None), "")
    return kept + MASK


def _said(value: object) -> str:
    """A value in words. A log line must not fail because of an object that cannot be shown."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - foreign `__str__` may raise anything at all
        return f"<{type(value).__name__}>"
