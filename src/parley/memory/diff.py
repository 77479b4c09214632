"""What a commit changed, for people to read. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from parley.memory.wording import flat
from parley.storage.memory import Change, Commit, Fact

__all__ = ["diff_of"]


def diff_of(commit: Commit) -> str:
    """A line for each fact: `+` came, `-` went, `~` was changed; then the lines of the summary.

    Empty when nothing that can be shown changed.
    """
    lines = [line for change in commit.changes for line in _lines(change)]
    if commit.summary is not None and commit.summary[0] != commit.summary[1]:
        before, since = (text.splitlines() for text in commit.summary)
        lines += ["", "Summary:"] if lines else ["Summary:"]
        lines += [
            f"{line[0]} {flat(line[1:])}"
            for line in difflib.unified_diff(before, since, n=0, lineterm="")
            if line[0] in "+-" and not line.startswith(("+++", "---")) and line[1:].strip()
        ]
    return "\n".join(lines)


def _lines(change: Change) -> Iterator[str]:
    before, after = change.before, change.after
    if after is None or after.state != "current":
        gone = before or after
        if gone is not None:
            instead = after.replaced_by if after is not None else None
            yield f"- [{change.fact}] {flat(gone.text)}" + (f" → [{instead}]" if instead else "")
    elif before is None or before.state != "current":
        yield f"+ [{change.fact}] {flat(after.text)}"
    elif (said := _said(before)) != _said(after):
        yield f"~ [{change.fact}] {said} → {_said(after)}"
    elif before.kind != after.kind:
        yield f"~ [{change.fact}] {before.kind} → {after.kind}: {said}"
    else:
        yield f"~ [{change.fact}] {said} (said again)"


def _said(fact: Fact) -> str:
    return flat(fact.text)
