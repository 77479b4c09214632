"""What a command line may do that a person wants to be asked about. Rather once too often.

It looks at all words, wherever they stand: behind `sudo`, `env` or `xargs`, in `sh -c '…'`, after
`;`, `|` or a new line, in `$(…)`. A command that hides what it runs counts as one that deletes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

__all__ = ["hides_what_it_runs", "risks_of"]

_DELETE = frozenset(
    {
        *("del", "dd", "fdisk", "fallocate", "parted", "rimraf", "rm", "rmdir", "shred", "srm"),
        *("trash", "trash-put", "truncate", "unlink", "wipe", "wipefs", "-delete"),
        *("--remove-files", "--remove-source-files", "removedirs", "rmSync", "rmdirSync", "rmtree"),
        *("unlinkSync", "rm_rf", "rm_f", "rm_r", "remove_dir", "remove_entry", "remove_file"),
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
    r"|graph\.instagram\.com|oauth\.reddit\.com|reddit\.com/api|hooks\.slack\.com|slack\.com/api"
    r"|discord(app)?\.com/api|/api/v\d/statuses"
)
_MAIL_HOSTS = re.compile(
    r"api\.(eu\.)?mailgun\.net|api\.(sendgrid|resend|postmarkapp|brevo|mailjet|sparkpost)\.com"
    r"|gmail\.googleapis\.com|/sendMail\b|email\.[a-z0-9-]{1,30}\.amazonaws\.com"
)
# Words of one simple command that delete together.
_TOGETHER = tuple(
    (frozenset(first.split()), frozenset(second.split()))
    for first, second in (
        ("git", "clean rm restore --hard -D drop clear"),
        ("rsync", "--del --delete --delete-after --delete-before --delete-excluded"),
        ("import", "remove"),
        ("crontab", "-r"),
        ("rclone svn hg kubectl docker podman az gcloud", "delete purge prune rmi"),
    )
)
_CALLS = re.compile(
    r"\bmkfs|\bos\.remove\b|\bremove\s*+\(|\bFile\.delete\b|\bfs(?:\.promises)?\.rm\b"
    r"|(?i:\bdrop\s++(?:table|database)\b|\bdelete\s++from\b)"
)
# No part of these looks back over what another start of theirs has seen: each takes one pass.
_BEGIN = r"(?:^|[;&|(\n{`]|\b(?:do|then|else|sudo|xargs|env|exec|command|nohup|time)\s)[^\S\n]*+"
_END = r"\s*+(?:-\s*+)?(?:$|[;&|\n)])"
_SHELL = r"(?:[^\s;&|(){}`<>]*/)?(?:ba|z|k|da|a|fi)?sh\b"
_OTHER = r"(?:[^\s;&|(){}`<>]*/)?(?:python[\d.]*+|perl|ruby|node|php)"
# What is run is made up on the way: from a variable, from what another program prints.
_HIDDEN = re.compile(
    rf"\beval\b|\$'|\bbase64\s++(?:-d|-D|--decode)|\bxxd\s++-\S*r|{_BEGIN}(?:source|\.)\s++<\("
    rf"|{_BEGIN}[\"']?\$|{_BEGIN}[^\s;&|()='\"#<>$`*?\[{{]*+(?:[$`*?]|\[(?!\[?\s))"
    rf"|\|\s*+(?:sudo\s++|env\s++)*+{_SHELL}(?!\s*+-c)|\|\s*+{_OTHER}{_END}"
    rf"|{_BEGIN}(?:{_SHELL}|{_OTHER})\s++<(?!<)|\b(?:ba|z|k|da|a|fi)?sh\s++-\w*c\s++[\"']?[$`]"
)
# Nothing takes the place of what was there.
_EMPTIED = re.compile(
    r"(?:^|[;|(\n{]|&&)[^\S\n]*+(?:(?::|true)[^\S\n]*+)?>\|?\s*+[^\s>&(]|\bcat\s++/dev/null\s*+>"
)
_SIMPLE = re.compile(r"[;|&\n]+")
_QUOTING = re.compile(r"[\\\"']|\$(?=['\"])")
_BETWEEN = re.compile(r"[\s;&|(){}<>`$=,\[\]:!]+")


def risks_of(command: str) -> frozenset[str]:
    """The safety triggers that a command line falls under."""
    found: set[str] = set()
    words = set(_words(command))
    plain = _QUOTING.sub("", command.replace("\\\n", ""))
    deletes = words & _DELETE or _CALLS.search(plain) or _EMPTIED.search(plain)
    if deletes or any(map(_deletes, _SIMPLE.split(plain))) or hides_what_it_runs(command):
        found.add("file-delete")
    if words & _MAIL or _MAIL_HOSTS.search(plain):
        found.add("email-send")
    if words & _POST or _POST_HOSTS.search(plain):
        found.add("social-post")
    return frozenset(found)


def hides_what_it_runs(command: str) -> bool:
    """Whether it runs what is not in its text: from a variable, or what a program prints."""
    return _HIDDEN.search(command) is not None


def _deletes(simple: str) -> bool:
    """Whether words of one simple command delete together."""
    given = simple.split()
    words = {*given, *_BETWEEN.split(simple)}
    if any(first & words and second & words for first, second in _TOGETHER):
        return True
    if "git" in words and "checkout" in words:
        return "--" in words or "." in given
    if "zip" in words:
        return any(re.match(r"-(?!-)\w*?[dm]", word) for word in given)
    into = pairwise(given)
    return bool(words & {"cp", "install", "mv"}) and any(
        word == "/dev/null" and not before.endswith((">", "<")) for before, word in into
    )


def _words(command: str) -> Iterator[str]:
    """Each word as the shell joins it (`r''m`), as it stands within quotes, and on its line."""
    joined = command.replace("\\\n", "")
    for text in (_QUOTING.sub("", joined), _QUOTING.sub(" ", joined), _QUOTING.sub(" ", command)):
        for word in set(_BETWEEN.split(text)):
            yield word
            yield word.rpartition("/")[2]
            yield word.rpartition(".")[2]
