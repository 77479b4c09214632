"""What the commands of `parley memory` take, and how they print."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from parley.cli._plain import escaped, one_line
from parley.cli._shared import fail
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.cli._memory_home import Memory
    from parley.storage.memory import Fact

__all__ = [
    "NOTHING_YET",
    "AsJson",
    "Chat",
    "FactId",
    "Limit",
    "Person",
    "ProfileFacts",
    "are_ids",
    "print_json",
    "terminal_width",
    "there",
]

T = TypeVar("T")

_MOST_BITS = 63

NOTHING_YET = (
    "Nothing is remembered yet. The agent takes note of what people tell it while their chats "
    'rest, or when they ask it to; you can begin with: parley memory add "…"'
)


def _known_facts(incomplete: str) -> list[tuple[str, str]]:
    """Ids for the shell to complete; whatever goes wrong, a shell is not the place to say so."""
    from parley.cli._memory_home import with_memory

    async def find(memory: Memory) -> list[Fact]:
        return await memory.facts([await memory.everything()])

    try:
        found = with_memory(find, merge=False) or []
    except (ParleyError, OSError):
        return []
    return [
        (str(fact.id), one_line(fact.text, longest=60))
        for fact in found
        if str(fact.id).startswith(incomplete)
    ]


def are_ids(given: int | list[int] | None) -> int | list[int] | None:
    """A number that no database takes is nobody's."""
    for id in given if isinstance(given, list) else [given]:
        if id is not None and id.bit_length() > _MOST_BITS:
            fail(f"Nothing has the number {id}; `parley memory list` shows the numbers.")
    return given


FactId = Annotated[
    int,
    typer.Argument(
        metavar="ID",
        help="What `list` shows first.",
        autocompletion=_known_facts,
        callback=are_ids,
    ),
]
Person = Annotated[
    str | None,
    typer.Option("--person", metavar="PERSON", help="Of this person: `platform:id`, id or name."),
]
Chat = Annotated[
    str | None,
    typer.Option("--chat", metavar="CHAT", help="Of this chat that several people read."),
]
ProfileFacts = Annotated[
    bool, typer.Option("--profile-facts", help="Only what everyone here may be told.")
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: object) -> None:
    """JSON for scripts that does no harm on a terminal either."""
    import json

    typer.echo(escaped(json.dumps(value, ensure_ascii=False)))


def terminal_width() -> int | None:
    """None where nobody reads along in a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def there(value: T | None) -> T:
    if value is None:
        fail(NOTHING_YET)
    return value
