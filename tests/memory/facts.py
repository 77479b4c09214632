"""Facts as the tests of memory need them."""

from __future__ import annotations

from parley.storage.memory import Fact

HERE = "person:telegram:99"


def a_fact(
    id: int,
    text: str = "",
    *,
    kind: str = "note",
    said_at: float = 1.8e9,
    at: float | None = None,
    place: str = HERE,
) -> Fact:
    return Fact(
        id=id,
        place=place,
        kind=kind,
        text=text or f"Fact number {id}",
        confidence=0.5,
        origin="learned",
        person="telegram:99",
        said_at=said_at,
        at=said_at if at is None else at,
    )
