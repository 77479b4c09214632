"""Refusals that are about the files of a request: a blind model, or a bad picture."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from parley.agent.providers.attachments import is_picture
from parley.agent.providers.base import ProviderError
from parley.protocol import ChatMessage

__all__ = ["about_files", "cannot_see"]

# Servers that run a model themselves say it with a 500.
_STATUSES = frozenset({400, 404, 415, 422, 500, 501})
_ABOUT_FILES = re.compile(
    r"image|picture|vision|multi-?modal|content[ _]?(part|type|block)|mmproj"
    r"|\bpdfs?\b|\bdocuments?\b|file_data"
    r"|content.{0,40}(must|should) be a (valid )?string",
    re.IGNORECASE,
)
# It would take others: this one is too large, of another kind, or not to be had.
_ABOUT_THIS_ONE = re.compile(
    r"download|fetch|exceed|too (large|big)|corrupt|could not process|decod|invalid[ _](image|pdf)"
    r"|unsupported[ _]image|image format|media[ _]type|password|\bpages\b",
    re.IGNORECASE,
)


def about_files(
    error: ProviderError, *, names: Iterable[str]
) -> Literal["unseen", "unusable"] | None:
    """Whether a refusal says that the model sees no files, or that one of them is no good.

    `names` are in our sentence about it and mean nothing, as in a model named after its vision.
    """
    text = str(error)
    for name in names:
        text = text.replace(name, "")
    if error.status not in _STATUSES or not _ABOUT_FILES.search(text):
        return None
    return "unusable" if _ABOUT_THIS_ONE.search(text) else "unseen"


def cannot_see(
    label: str, model: str, question: ChatMessage, refusal: ProviderError
) -> ProviderError:
    """The error for a question with files that the model does not take."""
    pictures = any(is_picture(one) for one in question.attachments)
    what = "see pictures" if pictures else "read such files"
    return ProviderError(
        f"{label}'s model {model} cannot {what}: ask without them, or choose a model that can "
        "with `parley config set model.name MODEL`.",
        kind="unsupported",
        status=refusal.status,
        public=f"The model here cannot {what}: please ask without them.",
    )
