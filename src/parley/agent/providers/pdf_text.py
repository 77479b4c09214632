"""The text of PDFs, for models that take none: extracted by pypdf, the extra `pdf`."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from parley.agent.foreign import clean, fenced
from parley.agent.providers.attachments import FileText, Takes, is_pdf, read_file
from parley.agent.providers.base import ModelRequest, ProviderError
from parley.config.extras import install_command
from parley.protocol import Attachment, ChatMessage

__all__ = ["pdf_texts"]

logger = logging.getLogger(__name__)

_LARGEST: Final = 20 * 1024 * 1024
_MOST_PAGES: Final = 200
_MOST_FILES: Final = 10
_SECONDS: Final = 10.0
_TO_START: Final = 10.0  # a busy machine takes its time to start Python

_NOT_INSTALLED: Final = "the text of PDFs cannot be read here"
_DAMAGED: Final = "it is damaged, or takes too long to read"
_REMOTE: Final = "a PDF is not read from a web address"


async def pdf_texts(request: ModelRequest, takes: Takes) -> Mapping[str, FileText]:
    """What stands for each PDF that is not passed on as it is, by its path.

    Raises `ProviderError` when a program sends one that cannot be read: it reads no chat in which
    the model could say so.
    """
    wanted = [
        one
        for message in reversed(request.messages)
        for one in message.attachments
        if message.role == "user" and is_pdf(one) and not takes.has_whole(one)
    ]
    texts: dict[str, FileText] = {}
    for one in wanted:
        if one.path not in texts:
            texts[one.path] = await _text_of(one, takes, is_late=len(texts) >= _MOST_FILES)
    if request.for_program:
        for one in _newly_sent(request.messages):
            if (found := texts.get(one.path)) is not None and found.why:
                raise _refusal(one, found.why)
    return texts


def _newly_sent(messages: Sequence[ChatMessage]) -> list[Attachment]:
    """Files since the last answer: an earlier one must not end the whole conversation."""
    found: list[Attachment] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        found.extend(message.attachments)
    return found


def _refusal(one: Attachment, why: str) -> ProviderError:
    public = f"The file {one.name} cannot be used: {why}. Send its text instead."
    sentence = public
    if why == _NOT_INSTALLED:
        sentence = f"{public[:-1]}, or install what reads it: `{install_command('pdf')}`."
    return ProviderError(sentence, kind="unsupported", public=public)


async def _text_of(one: Attachment, takes: Takes, *, is_late: bool) -> FileText:
    if one.is_remote:
        return FileText(why=_REMOTE)
    if is_late:
        return FileText(why=f"only {_MOST_FILES} PDFs are read at a time")
    if find_spec("pypdf") is None:
        logger.warning("A PDF was not read. To read PDFs, run `%s`.", install_command("pdf"))
        return FileText(why=_NOT_INSTALLED)
    # Threads of its own: slow PDFs must not hold up whatever else is done beside the event loop.
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), _read, one.path, takes.text_bytes)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, thread_name_prefix="pdf")


def _read(path: str, characters: int) -> FileText:
    try:
        known = os.stat(path)  # noqa: PTH116 - a path of ours, for its numbers
    except OSError:
        return FileText(is_gone=True)
    return _extracted(path, known.st_size, known.st_mtime_ns, characters)


@functools.lru_cache(maxsize=32)
def _extracted(path: str, size: int, changed: int, characters: int) -> FileText:
    """Once for all turns of a conversation, with the same fence: its prompt stays cached."""
    try:
        data = read_file(path, _LARGEST)
    except OSError:
        return FileText(is_gone=True)
    if data is None:
        return FileText(why=f"it is larger than {_LARGEST // 1024**2} MB")
    found = _run(data, characters)
    if found is None:
        return FileText(why=_DAMAGED)
    if found["is_locked"]:
        return FileText(why="it is locked with a password")
    pages: list[str] = found["texts"]
    text = clean("\n\n".join(page for page in pages if page)).strip()[:characters]
    if not text:
        why = "it has no text, only pictures perhaps" if found["is_whole"] else _DAMAGED
        return FileText(why=why)
    note = "" if found["is_whole"] else f"cut: {len(pages)} of {found['pages']} pages were read"
    return FileText(fenced("pdf", text, note))


def _run(data: bytes, characters: int) -> dict[str, Any] | None:
    """What the child found; None when it had to be ended."""
    script = Path(__file__).with_name("pdf_page_text.py")
    limits = (str(_MOST_PAGES), str(characters), str(_SECONDS))
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(script), *limits],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            timeout=_SECONDS + _TO_START,
            start_new_session=True,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        logger.warning("A PDF of %s bytes could not be read.", len(data))
        return None
    return found
