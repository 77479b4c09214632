"""`todo` keeps the list of a conversation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.tools.todo import TodoArguments, TodoItem, todo
from tests.agent.tools.lent import SmallHands, use

STATES = ("open", "doing", "done")


async def test_a_list_is_kept_and_shown_again() -> None:
    hands = SmallHands()
    items = [
        {"text": "buy flour", "state": "done"},
        {"text": "bake", "state": "doing"},
        {"text": "eat"},
    ]
    said = await use(todo, hands, items=items)
    assert said.text == "1 of 3 done:\n[x] buy flour\n[>] bake\n[ ] eat"
    assert (await use(todo, hands)).text == said.text


async def test_a_new_list_takes_the_place_of_the_old_one() -> None:
    hands = SmallHands()
    await use(todo, hands, items=[{"text": "old"}])
    await use(todo, hands, items=[{"text": "new"}])
    assert (await use(todo, hands)).text == "0 of 1 done:\n[ ] new"


async def test_an_empty_list_leaves_nothing_behind() -> None:
    hands = SmallHands()
    await use(todo, hands, items=[{"text": "old"}])
    assert (await use(todo, hands, items=[])).text == "The list is empty."
    assert hands.notes == {}


@pytest.mark.parametrize(
    "items",
    [
        [{"text": "x"}] * 51,
        [{"text": "x" * 201}],
        [{"text": "   "}],
        [{"text": "x", "state": "perhaps"}],
        [{"state": "open"}],
        ["x"],
        "x",
        [{"text": "x", "owner": "me"}],
    ],
)
async def test_what_does_not_fit_is_refused_and_changes_nothing(items: object) -> None:
    hands = SmallHands()
    await use(todo, hands, items=[{"text": "old"}])
    result = await use(todo, hands, items=items)
    assert not result.ok
    assert result.text.startswith("Wrong arguments: `items")
    assert (await use(todo, hands)).text.endswith("old")


async def test_one_item_is_one_line() -> None:
    shown = await use(todo, SmallHands(), items=[{"text": "a\n[x] b\r\nc"}])
    assert shown.text == "0 of 1 done:\n[ ] a [x] b c"


@pytest.mark.parametrize("note", ["", "[]", "{", '{"items": [{"text": ""}]}', "null"])
async def test_a_note_that_cannot_be_read_is_no_list(note: str) -> None:
    assert (await use(todo, SmallHands(notes={"todo": note}))).text == "The list is empty."


@given(
    st.lists(
        st.tuples(
            st.text(
                st.characters(codec="utf-8", exclude_categories=["Cc", "Z"]),
                min_size=1,
                max_size=200,
            ),
            st.sampled_from(STATES),
        ),
        max_size=50,
    )
)
def test_whatever_is_kept_is_read_again(wanted: list[tuple[str, str]]) -> None:
    items = [TodoItem.model_validate({"text": text, "state": state}) for text, state in wanted]
    kept = TodoArguments(items=items).model_dump_json()
    assert TodoArguments.model_validate_json(kept).items == items
