"""Where something that is said is remembered, and where it may be used. Pure.

What a person says to the agent alone is remembered for that person, on whatever of their
conversations there. What is said where others read along stays in that chat.
"""

from __future__ import annotations

from dataclasses import dataclass

from parley.protocol import Request, SessionSource, person_of
from parley.sessions.key import encode_part, parse_session_key
from parley.storage.memory import PROFILE, chat_place, person_place

__all__ = ["NOWHERE", "Places", "places_of"]


@dataclass(frozen=True, slots=True)
class Places:
    """`write`: where what is said is kept. `read`: what may be used there, in this order.

    `write` is empty where nothing is remembered.
    """

    write: str
    read: tuple[str, ...]

    @property
    def is_private(self) -> bool:
        return self.write.startswith("person:")


NOWHERE = Places("", ())


def places_of(
    lane: str, source: SessionSource, *, request: Request | None = None, groups: bool = True
) -> Places:
    """A program is remembered under the key it gives for that, and without one not at all."""
    if source.platform == "task":
        return NOWHERE
    if source.platform == "api":
        key = request.memory_key if request is not None else None
        if key is None:
            return NOWHERE
        owner = f"{person_of(source)}:{encode_part(key)}"
        return Places(person_place(owner), (PROFILE, person_place(owner)))
    if source.platform == "direct":  # one key speaks for many people: each thread is its own
        write = person_place(f"direct:{source.chat_id}")
    elif source.chat_type == "dm":
        write = person_place(person_of(source))
    elif groups:
        write = chat_place(_chat(lane))
    else:
        return Places("", (PROFILE,))
    return Places(write, (PROFILE, write))


def _chat(lane: str) -> str:
    """The room and the thread in it, whoever speaks there; the profile's name is left out."""
    parts = parse_session_key(lane)
    found = (parts.platform, parts.chat_type, parts.chat_id, parts.thread_id)
    return ":".join(encode_part(part) for part in found if part)
