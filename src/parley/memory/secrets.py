"""What must not be remembered because it opens something: keys, passwords, cards, codes. Pure.

A guess by shape. It would rather leave a harmless line out than keep a key for good; ordinary talk,
links, dates, telephone numbers, bank accounts and UUIDs pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from parley.config.redact import MASK, Redactor

__all__ = ["looks_secret", "without_secrets"]

_BY_SHAPE: Final = Redactor()

# Two characters that no text holds: a mask that was there before, and a word that is only a word.
_MASKED: Final = "\ufdd1"
_PLAIN: Final = "\ufdd0"

# In talk, "basic Spanish" is no login and "favourite cookie: oatmeal" is no header.
_LOGIN = re.compile(r"[Bb](?:asic|earer|ASIC|EARER)(?=\s{1,9}([\w.~+/=-]{1,80}))")
_COOKIE = re.compile(r"[Cc]ookie(?=:\s{0,9}[^\W\d_]{1,40}(?![\w=]))")
_WORD = re.compile(r"(?:[^\W\d_]?[^\W\d_A-Z]+|[A-Z]+)(?:-[^\W\d_]+)*\.?")

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----"
    r"(?s:.*?)(?:-----END [A-Z0-9 ]{0,60}-----|\Z)"
)
_KEYS = re.compile(
    r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|(?:glpat-|npm_|hf_|[spr]k_(?:live|test)_|whsec_|shpat_|dop_v1_|AGE-SECRET-KEY-|SG\.)"
    r"[A-Za-z0-9_.-]{10,})"
)


def looks_secret(text: str) -> bool:
    """Whether something in the text looks like a key, a password, a card or a code."""
    return without_secrets(text) != text


def without_secrets(text: str) -> str:
    """The text with `[redacted]` for what looks like a secret."""
    text = text.replace(MASK, _MASKED)
    text = _PRIVATE_KEY.sub(MASK, text)
    text = _COOKIE.sub(rf"\g<0>{_PLAIN}", _LOGIN.sub(_shield, text))
    text = _BY_SHAPE.text(text).replace(_PLAIN, "")
    text = _KEYS.sub(MASK, text)
    text = _masked(text, _told(text))
    text = _DIGITS.sub(_card, text)
    return _RUN.sub(_run, text).replace(_MASKED, MASK)


def _shield(match: re.Match[str]) -> str:
    return match[0] + _PLAIN if _WORD.fullmatch(match[1]) else match[0]


# ── what follows a word such as "password" ────────────────────────────────────────────────────

# Patterns that begin with a character are looked for much quicker than those with a boundary.
_NAMES = re.compile(
    r"(?P<password>(?:passwords?|passwd|passphrase|passcode|passwort|kennwort|mot de passe"
    r"|contraseña|senha|palavra-passe|wachtwoord|hasło|lösenord|adgangskode|passord"
    r"|salasana|parola|şifre|пароль)\b|密码|密碼|パスワード|비밀번호)"
    r"|(?P<card>cv[vc]2?\b)"
    r"|(?P<code>(?:pin|puk|otp|2fa|code|clave|código|codice|kode|kod|код)\b|验证码|暗証番号)"
)
# A few words may stand between: "the PIN of my card is 4711".
_IS = (
    r"(?:(?:\s+[^\W\d_]{1,16}){0,5}?(?:\s*[:=：]\s*|\s+(?:is|was|ist|war|lautet|est|es|é|è|to|auf"
    r"|jest|är|er)\s+(?:now\s+|jetzt\s+)?)|\s*[是は은는]\s*|\s+)"
)
_NUMBER = r"(?:[a-z]-)?\d(?:[ -]?\d){3,9}(?![\w-])"
# At least four characters, with a digit or a sign among them; or anything at all in quotes.
_MADE_UP = (
    r"[\"'`„“«][^\"'`”“»\n]{3,80}[\"'`”“»]"
    r"|(?=[^\W\d_]{0,60}(?:\d|[!$%&*+=?@^~#_]\w))[^\s\"'`,;<>]{4,}"
)
_ANYTHING = r"(?:\s+[^\W\d_]{1,16}){0,5}?\s*[:=：]\s*(?P<any>[^\s\"'`,;<>]{4,})"
_VALUES: Final = {
    "password": re.compile(rf"{_IS}(?P<value>{_MADE_UP})|{_ANYTHING}"),
    "code": re.compile(rf"{_IS}(?P<value>{_NUMBER})"),
    "card": re.compile(r"(?:\s*[:=]\s*|\s+(?:is\s+|ist\s+)?)(?P<value>\d{3,4})\b"),
}
_BEFORE = re.compile(
    r"\b(?P<value>(?:[a-z]-)?\d{4,8})\s+(?:is|ist|est|es|jest)\s+(?:[^\W\d_]{1,16}\s+){0,2}$"
)
_HARMLESS = re.compile(
    r"(?:area|bar|building|colou?r|country|dial(?:l?ing)?|discount|dress|error|exit|http|language"
    r"|page|post|postal|product|promo|qr|response|return|source|state|status|tax|voucher|zip)[ -]$"
)


def _told(text: str) -> Iterator[tuple[int, int]]:
    """Where somebody tells a password or a code, in their own words."""
    lower = _lower(text)
    for name in _NAMES.finditer(lower):
        start, end = name.span()
        if lower[start] < "\u3000" and lower[start - 1 : start].isalnum():
            continue  # the end of a longer word
        near = lower[max(0, start - 60) : start]
        if name.lastgroup == "code" and _HARMLESS.search(near):
            continue
        if before := _BEFORE.search(near):
            yield (
                start - len(near) + before.start("value"),
                start - len(near) + before.end("value"),
            )
        if after := _VALUES[name.lastgroup or ""].match(lower, end):
            yield after.span(after.lastgroup or 0)


def _lower(text: str) -> str:
    """In small letters, each where it stood."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


def _masked(text: str, spans: Iterator[tuple[int, int]]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in spans:
        if start >= done:
            parts += (text[done:start], MASK)
            done = end
    return "".join((*parts, text[done:]))


# ── cards, and runs that nobody types ─────────────────────────────────────────────────────────

# A bank account is taken as a whole, so that no part of it is taken for a card.
_DIGITS = re.compile(
    r"[A-Z](?<!\w.)[A-Z]\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"
    r"|\d(?<![\w+.-].)(?:[ -]?\d){13,18}(?![\w-])"
)
_ISSUERS = re.compile(
    r"4\d{15}(?:\d{3})?|(?:5[1-5]|2[2-7]|35|6[045])\d{14}|3[47]\d{13}|3[068]\d{12}"
)
_RUN = re.compile(r"[A-Za-z0-9+/_=-]{20,}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TURN = re.compile(r"(?=[a-z][A-Z0-9]|[A-Z][0-9]|[0-9][A-Za-z])")


def _card(match: re.Match[str]) -> str:
    digits = re.sub(r"[ -]", "", match[0])
    if not _ISSUERS.fullmatch(digits) or not _luhn(digits):
        return match[0]
    return MASK


def _luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _run(match: re.Match[str]) -> str:
    run = match[0][:2000]
    return MASK if any(map(_is_random, (run, *re.split(r"[/=]", run)))) else match[0]


def _is_random(run: str) -> bool:
    """Whether letters and digits alternate as they do in no word, path or date."""
    if len(run) < 20 or _UUID.search(run):
        return False
    turns = sum(1 for _ in _TURN.finditer(run))
    return turns >= 5 and turns >= len(run) * 0.18 and any(map(str.isdigit, run))
