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
_TWO_WORDS = re.compile(
    r"\bgit\b[^;|&\n]*\b(clean|rm)\b|\bgit\b[^;|&\n]*\b(reset\b[^;|&\n]*--hard|branch\b.*-D)"
    r"|\brsync\b[^;|&\n]*--del|\bmkfs|\bos\.remove\b|\bFile\.delete\b|\bfs\.rm\b"
)
# What is run is made up on the way: from a variable, from what another program prints.
_BEGIN = r"(?:^|[;&|(\n{`]|\b(?:do|then|else|sudo|xargs|env|exec|command|nohup|time)\s)\s*"
_END = r"\s*(?:-\s*)?(?:$|[;&|\n)])"
_HIDDEN = re.compile(
    rf"\beval\b|\$'|\bbase64\s+(?:-d|-D|--decode)|\bxxd\s+-\S*r|{_BEGIN}(?:source|\.)\s+<\("
    rf"|{_BEGIN}[\"']?\$|{_BEGIN}[^\s;&|()='\"#<>]+[$`*?\[]"
    r"|\|\s*(?:sudo\s+|env\s+)*(?:\S*/)?(?:ba|z|k|da|a|fi)?sh\b(?!\s*-c)"
    rf"|\|\s*(?:\S*/)?(?:python[\d.]*|perl|ruby|node|php){_END}"
)
_QUOTING = re.compile(r"[\\\"']|\$(?=['\"])")
_BETWEEN = re.compile(r"[\s;&|(){}<>`$=,\[\]:!]+")


def risks_of(command: str) -> frozenset[str]:
    """The safety triggers that a command line falls under."""
    found: set[str] = set()
    words = set(_words(command))
    plain = _QUOTING.sub("", command.replace("\\\n", ""))
    if words & _DELETE or _TWO_WORDS.search(plain) or _HIDDEN.search(command):
        found.add("file-delete")
    if words & _MAIL:
        found.add("email-send")
    if words & _POST or _POST_HOSTS.search(plain):
        found.add("social-post")
    return frozenset(found)


def _words(command: str) -> Iterator[str]:
    """Each word twice: as the shell joins it (`r''m`), and as it stands within quotes."""
    joined = command.replace("\\\n", "")
    for text in (_QUOTING.sub("", joined), _QUOTING.sub(" ", joined)):
        for word in _BETWEEN.split(text):
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
