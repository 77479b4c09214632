"""What a command line may do that a person wants to be asked about. Rather once too often.

It looks at all words, wherever they stand: behind `sudo`, `env` or `xargs`, in `sh -c '…'`, after
`;`, `|` or a new line, in `$(…)`. A command that hides what it runs counts as one that deletes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from parley.agent.foreign import is_unseen

__all__ = ["risks_of", "visible"]

_DELETE = frozenset(
    {
        *("del", "dd", "fdisk", "fallocate", "parted", "rimraf", "rm", "rmdir", "shred", "srm"),
        *("trash", "trash-put", "truncate", "unlink", "wipe", "wipefs", "-delete"),
        *("--remove-files", "--remove-source-files", "removedirs", "rmSync", "rmdirSync", "rmtree"),
        *("unlinkSync", "rm_rf", "rm_f"),
    }
)
_MAIL = frozenset(
    {
        *("aerc", "alpine", "emacsmail", "exim", "exim4", "himalaya", "mail", "mailx", "msmtp"),
        *("mutt", "nail", "neomutt", "nodemailer", "s-nail", "send-email", "sendemail"),
        *("sendmail", "smtplib", "smtp", "smtps", "ssmtp", "swaks"),
    }
)
_POST = frozenset(
    {
        *("bsky", "madonctl", "rainbowstream", "toot", "tootstream", "tweepy", "tweet", "twurl"),
        *("atproto", "praw", "mastodon"),
    }
)
_POST_HOSTS = re.compile(
    r"api\.(twitter|x|linkedin|telegram|tumblr)\.(com|org)|bsky\.social|graph\.facebook\.com"
    r"|oauth\.reddit\.com|hooks\.slack\.com|discord(app)?\.com/api|/api/v\d/statuses"
)
# Each of these is looked for in what stands before the next `;`, `|`, `&` or line: from one end of
# it to the other once, whatever it holds.
_GIT = re.compile(r"\bgit\b")
_RSYNC = re.compile(r"\brsync\b")
_GIT_DELETES = re.compile(r"\b(?:clean|rm)\b")
_GIT_RESET = re.compile(r"\breset\b")
_GIT_BRANCH = re.compile(r"\bbranch\b")
_DELETING_NAMES = re.compile(r"\bmkfs|\bos\.remove\b|\bFile\.delete\b|\bfs\.rm\b")
_PARTS = re.compile(r"[;|&]+")
# What is run is made up on the way: from a variable, from what another program prints.
# Blanks are made one before, and no part of these runs over a place where another could begin:
# the time that they take grows with the command, not with its square.
_BEGIN = r"(?:^|[;&|(\n{`]|\b(?:do|then|else|sudo|xargs|env|exec|command|nohup|time)\s)\s?"
_END = r"\s*(?:-\s*)?(?:$|[;&|\n)])"
_HIDDEN = re.compile(
    rf"\beval\b|\$'|\bbase64\s+(?:-d|-D|--decode)|\bxxd\s+-\S*r|{_BEGIN}(?:source|\.)\s+<\("
    rf"|{_BEGIN}[\"']?\$|{_BEGIN}[^\s;&|(){{='\"#<>]+[$`*?\[]|{{[$`*?\[]"
    r"|\|\s*(?:sudo\s+|env\s+)*(?:[^\s|]*/)?(?:ba|z|k|da|a|fi)?sh\b(?!\s*-c)"
    rf"|\|\s*(?:[^\s|]*/)?(?:python[\d.]*|perl|ruby|node|php){_END}"
)
_QUOTING = re.compile(r"[\\\"']|\$(?=['\"])")
_BLANKS = re.compile(r"\s+")
_BETWEEN = re.compile(r"[\s;&|(){}<>`$=,\[\]:!]+")


def risks_of(command: str) -> frozenset[str]:
    """The safety triggers that a command line falls under."""
    found: set[str] = set()
    words = set(_words(command))
    plain = _QUOTING.sub("", command.replace("\\\n", ""))
    if words & _DELETE or _deletes_in_two_words(plain) or _hides(command):
        found.add("file-delete")
    if words & _MAIL:
        found.add("email-send")
    if words & _POST or _POST_HOSTS.search(plain):
        found.add("social-post")
    return frozenset(found)


def _hides(command: str) -> bool:
    flat = _BLANKS.sub(lambda blank: "\n" if "\n" in blank[0] else " ", command)
    return _HIDDEN.search(flat) is not None


def _deletes_in_two_words(plain: str) -> bool:
    if _DELETING_NAMES.search(plain):
        return True
    for line in plain.split("\n"):
        git = _behind(_GIT, line)
        if "-D" in _behind(_GIT_BRANCH, git):
            return True
        for part in _PARTS.split(line):
            git = _behind(_GIT, part)
            if _GIT_DELETES.search(git) or "--hard" in _behind(_GIT_RESET, git):
                return True
            if "--del" in _behind(_RSYNC, part):
                return True
    return False


def _behind(word: re.Pattern[str], text: str) -> str:
    """What follows the first of these; nothing when there is none."""
    found = word.search(text)
    return text[found.end() :] if found is not None else ""


def _words(command: str) -> Iterator[str]:
    """Each word as the shell joins it (`r''m`), as it stands within quotes, and on its line."""
    joined = command.replace("\\\n", "")
    for text in (_QUOTING.sub("", joined), _QUOTING.sub(" ", joined), _QUOTING.sub(" ", command)):
        for word in set(_BETWEEN.split(text)):
            yield word
            yield word.rpartition("/")[2]
            yield word.rpartition(".")[2]


def visible(text: str) -> str:
    """On one line, with nothing that could hide a part of it from whoever reads it."""
    return "".join(_escaped(character) if is_unseen(character) else character for character in text)


def _escaped(character: str) -> str:
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    if known is not None:
        return known
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"
