"""Audit records of approvals: what was asked, who answered, and that the call was then made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from parley import audit
from parley.agent.tool_records import PRIVATE_TEXTS
from parley.audit.masking import digested
from parley.profiles import Profile
from parley.sessions.key import parse_session_key
from parley.storage.hands import Question

__all__ = ["record_answer", "record_question", "record_use"]

_WRAPPED: Final = re.compile(r"\n *\+ ")


def record_question(
    kind: str, profile: Profile | None, question: Question, reasons: Sequence[str] = ()
) -> None:
    """Asked, expired or withdrawn."""
    told = _about(question) | {"reasons": list(reasons)}
    audit.record(kind, profile=profile, who=question.person, **told)


def record_answer(
    profile: Profile | None, question: Question, *, allowed: bool, by: str, scope: str
) -> None:
    """Somebody's answer, and the grant that it gives."""
    answer = "approval.allowed" if allowed else "approval.denied"
    scope = "once" if question.once else scope
    told = _about(question) | {"asked_for": question.person, "scope": scope}
    audit.record(answer, profile=profile, who=by, **told)
    if allowed and scope != "once":
        audit.record("grant.given", profile=profile, who=by, **told)


async def record_use(profile: Profile | None, question: Question) -> str:
    """The call is about to be made; why it may not be, where that cannot be recorded."""
    return await audit.record_durably(
        "approval.used", profile=profile, who=question.person, **_about(question)
    )


def _about(question: Question) -> dict[str, Any]:
    """The exact call: as it was shown, and by the digest of its arguments.

    What people may want to be forgotten is not repeated where nothing can be taken out. A line is
    in one piece, so that a secret in it is found.
    """
    whole = _WRAPPED.sub("", question.what)
    what = digested(whole) if question.tool in PRIVATE_TEXTS else whole
    return {
        "origin": parse_session_key(question.lane).platform,
        "id": question.id,
        "call": question.call,
        "tool": question.tool,
        "what": what,
        "digest": question.digest,
        "owners_only": question.owner or None,
        "lane": question.lane,
    }
