"""`parley people`, on real databases, beside a gateway that serves them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from parley.storage.sqlite import SqliteStore
from tests.cli.command import Parley


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    return Parley(tmp_path / "home")


def know(parley: Parley, *people: tuple[str, str, str]) -> None:
    async def write() -> None:
        parley.home.mkdir(exist_ok=True)
        store = SqliteStore.open(parley.profile.database_file)
        for platform, external_id, name in people:
            await store.get_or_create_user(external_id, platform, name)
        await store.close()

    asyncio.run(write())


def test_before_anyone_has_spoken_it_says_so(parley: Parley) -> None:
    assert parley.run("people", "list").stdout == "Nobody has spoken here yet.\n"
    gone = parley.run("people", "show", "ann")
    assert (gone.returncode, gone.stderr) == (1, "parley: Nobody has spoken here yet.\n")


def test_a_plan_is_given_to_one_who_has_not_spoken_yet(parley: Parley) -> None:
    know(parley, ("matrix", "@ann:example.org", "Ann"))
    eve = "matrix:@eve:example.org"
    given = parley.run("people", "plan", eve, "--tokens", "7000")
    assert given.stdout == f"{eve}: plan Beta: 0 of 7,000 tokens this month.\n"
    know(parley, ("matrix", "@eve:example.org", "Eve"))
    assert parley.json("people", "show", eve, "--json")["plan"]["tokens"] == 7000


def test_nobody_gets_the_plan_of_another_by_calling_themselves_so(parley: Parley) -> None:
    eve = "matrix:@eve:example.org"
    know(
        parley,
        ("matrix", "@mallory:example.org", eve),
        ("matrix", "@oscar:example.org", "@eve:example.org"),
    )
    given = parley.run("people", "plan", eve, "--tokens", "7000")
    assert given.stdout == f"{eve}: plan Beta: 0 of 7,000 tokens this month.\n"
    assert parley.run("people", "show", "@eve:example.org").returncode == 1


def test_an_owner_sees_who_speaks_and_gives_them_more(parley: Parley) -> None:
    know(
        parley,
        ("matrix", "@ann:example.org", "Ann"),
        ("matrix", "@bob:example.org", "\x1b[31mBob"),
        ("desk", "@ann:example.org", "Ann"),
    )
    parley.profile.config_file.write_text(
        'plan: {tokens: 1000}\naccess: {owners: ["matrix:@bob:example.org"]}\n'
    )
    listed = parley.run("people", "list").stdout
    assert "\x1b" not in listed
    rows = {line.split()[0]: line for line in listed.splitlines()}
    assert rows["matrix:@ann:example.org"].endswith("Beta: 0 of 1,000 tokens this month")
    assert rows["matrix:@bob:example.org"].endswith("  none")
    several = parley.run("people", "show", "@ann:example.org")
    assert several.returncode == 1
    assert "give the whole `platform:id`" in several.stderr

    ann = "matrix:@ann:example.org"
    given = parley.run("people", "plan", ann, "--tokens", "50,000", "--name", "Gold")
    assert given.stdout == f"{ann}: plan Gold: 0 of 50,000 tokens this month.\n"
    assert parley.json("people", "show", ann, "--json")["plan"] == {
        "name": "Gold",
        "tokens": 50000,
        "used": 0,
    }
    free = parley.run("people", "plan", ann, "--tokens", "none")
    assert free.stdout == f"{ann} has no plan (unlimited).\n"
    assert "of 1,000" in parley.run("people", "plan", ann, "--tokens", "default").stdout
    assert "has no plan" in parley.run("people", "plan", "@bob:example.org").stdout
    assert (
        "desk:@ann:example.org: plan Beta" in parley.run("people", "plan", f"desk{ann[6:]}").stdout
    )
    text = parley.run("people", "show", ann).stdout
    assert "skills      web-search on, fetch-url on, files on, email off" in text
    assert json.loads(parley.run("people", "list", "--json").stdout)[0]["platform"] == "desk"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("plan", "Ann", "--tokens", "many"), "--tokens wants a number"),
        (("plan", "Ann", "--tokens", "-5"), "--tokens wants a number"),
        (("plan", "Ann", "--name", "  "), "--name wants a name"),
        (("show", "Eve"), "Nobody called Eve has spoken here"),
        (("plan", "Eve", "--tokens", "5"), "Nobody called Eve has spoken here"),
    ],
    ids=["words", "negative", "blank-name", "unknown", "unknown-plan"],
)
def test_what_cannot_be_meant_is_a_sentence(
    parley: Parley, arguments: tuple[str, ...], sentence: str
) -> None:
    know(parley, ("desk", "ann", "Ann"))
    said = parley.run("people", *arguments)
    assert said.returncode == 1
    assert said.stderr.startswith(f"parley: {sentence}")
