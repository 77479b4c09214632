"""What a message is on the wire, without a server."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from parley.surfaces.matrix.content import (
    Spot,
    edit_of,
    fitting,
    message,
    part_limit,
    transaction,
)
from parley.surfaces.text.markup import to_html
from parley.surfaces.text.split import split_text

_texts = st.lists(
    st.sampled_from(
        ["word ", "слово ", "漢字", '"\\', "<&>", "\x01", "🎉", "\n\n", "**b** ", "`c`"]
    ),
    min_size=1,
    max_size=20,
).flatmap(lambda bits: st.integers(1, 2000).map(lambda times: "".join(bits) * times))


@settings(max_examples=25)
@given(_texts, st.booleans())
def test_every_part_of_every_text_fits_an_event_even_as_an_edit(text: str, encrypted: bool) -> None:
    text = text[:20_000]
    for part in split_text(text, limit=part_limit(text))[:2]:
        content = message(part, to_html(part), Spot("!room:x", thread="$t", person="@a:x"))
        edit = fitting(edit_of("$event", content), encrypted=encrypted)
        assert edit["m.new_content"]["body"] == part
        assert edit["body"].startswith("* ")
        size = len(json.dumps(edit, ensure_ascii=encrypted).encode())
        assert (size * 4 / 3 if encrypted else size) < 64_000


def test_transactions_are_stable_and_their_parts_do_not_run_together() -> None:
    assert transaction("s1", "turn:41", "0") == transaction("s1", "turn:41", "0")
    names = {
        ("s1", "turn:41", "0"),
        ("s1", "turn:4", "10"),
        ("s", "1turn:41", "0"),
        ("s1", "turn:410", ""),
    }
    assert len({transaction(*each) for each in names}) == len(names)
    assert transaction("s1", "turn:41", "0") == "parley.86c023f5170c75d4d07807ecf16f4b7cf143fcf6"
