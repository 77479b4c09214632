"""Skills are listed by name and description and read on demand; nothing of them is run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.agent import skills as room
from parley.agent.skills import Skills, prompt_part
from parley.agent.tools import ToolResult
from parley.agent.tools.skills import skill_tools
from parley.protocol import ToolCall
from tests.agent.builders import context

PLAIN = "---\nname: {name}\ndescription: {description}\n---\n\n# How\n\nDo it well.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "skills"
    made.mkdir()
    return made


def put(folder: Path, name: str, text: str | None = None) -> Path:
    skill = folder / name
    skill.mkdir(exist_ok=True)
    file = skill / "SKILL.md"
    file.write_text(PLAIN.format(name=name, description=f"About {name}.") if text is None else text)
    return skill


async def read(skills: Skills, **arguments: Any) -> ToolResult:
    (tool,) = skill_tools(skills)
    return await tool.run(ToolCall("c1", "read_skill", arguments), context())


def test_skills_are_told_by_name_and_description(folder: Path) -> None:
    put(folder, "writing")
    put(folder, "cooking", "# Cooking for many\n\nTake salt.")
    skills = Skills(folder)
    told = [(skill.name, skill.description) for skill in skills.listing()]
    assert told == [("cooking", "Cooking for many"), ("writing", "About writing.")]
    assert prompt_part(skills.listing()) == (
        "Skills are instructions for certain work; read a fitting one by read_skill:\n"
        "- cooking: Cooking for many\n- writing: About writing."
    )
    assert skills.faults() == {}


def test_without_skills_nothing_is_told(folder: Path) -> None:
    assert prompt_part(Skills(folder).listing()) == ""
    assert Skills(folder / "nowhere").listing() == ()


async def test_a_skill_is_read_without_its_front_matter(folder: Path) -> None:
    skill = put(folder, "writing")
    (skill / "forms").mkdir()
    (skill / "forms" / "letter.md").write_text("Dear …")
    skills = Skills(folder)
    told = await read(skills, name="writing")
    assert told == ToolResult("# How\n\nDo it well.\n\nIts other files: forms/letter.md")
    assert await read(skills, name="writing", file="forms/letter.md") == ToolResult("Dear …")


async def test_a_missing_skill_is_answered_with_those_there_are(folder: Path) -> None:
    put(folder, "writing")
    missing = await read(Skills(folder), name="flying")
    assert missing == ToolResult("There is no skill `flying`; there are: writing.", ok=False)


@pytest.mark.parametrize(
    "file",
    [
        "../../secret.txt",
        "{outside}/secret.txt",
        "/etc/passwd",
        "link.txt",
        "down/secret.txt",
        "../cooking/SKILL.md",
        "..",
        ".",
        "",
        "a\0b",
        "loop",
        "pipe",
        "data.bin",
        "x" * 5000,
        "SKILL.md/x",
    ],
)
async def test_a_path_out_of_the_skill_is_refused(folder: Path, file: str) -> None:
    outside = folder.parent
    (outside / "secret.txt").write_text("the secret")
    put(folder, "cooking", "the secret")
    skill = put(folder, "writing")
    (skill / "link.txt").symlink_to(outside / "secret.txt")
    (skill / "down").symlink_to(outside, target_is_directory=True)
    (skill / "loop").symlink_to("loop")
    (skill / "data.bin").write_bytes(b"\0\1")
    os.mkfifo(skill / "pipe")
    result = await read(Skills(folder), name="writing", file=file.format(outside=outside))
    assert "the secret" not in result.text
    assert not result.ok or file == ""


def test_a_link_that_leaves_the_folder_is_not_followed(folder: Path) -> None:
    outside = folder.parent / "elsewhere"
    outside.mkdir()
    put(outside, "stolen")
    (folder / "stolen").symlink_to(outside / "stolen", target_is_directory=True)
    half = folder / "half"
    half.mkdir()
    (half / "SKILL.md").symlink_to(outside / "stolen" / "SKILL.md")
    skills = Skills(folder)
    assert skills.listing() == ()
    assert set(skills.faults()) == {"stolen", "half"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("---\nname: [\n---\n", "not YAML"),
        ("---\nname: a b\ndescription: x\n---\n", "Its `name` may hold"),
        ("---\nname: ../x\ndescription: x\n---\n", "Its `name` may hold"),
        ("---\nname: x\n---\n", "`description` is missing"),
        ("---\ndescription: [a]\n---\n", "`description` is missing"),
        ("---\ndescription: !!python/object/apply:os.system [id]\n---\n", "is missing"),
        ("---\n" + "[" * 1_000 + "\n---\n", "too long"),
        ("---\n" + "x: y\n" * 10_000 + "---\n", "too long"),
        ("x" * 200_001, "larger than 200 kB"),
        ("\0", "not a text file"),
        (
            "---\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n"
            "c: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\n"
            "e: [*d,*d,*d,*d,*d,*d,*d,*d]\n---\n",
            "more than 20000 values",
        ),
    ],
)
def test_a_broken_skill_is_left_out_and_named(folder: Path, text: str, why: str) -> None:
    put(folder, "broken", text)
    put(folder, "good")
    skills = Skills(folder)
    assert [skill.name for skill in skills.listing()] == ["good"]
    assert why in skills.faults()["broken"]


def test_names_are_plain_and_the_only_ones(folder: Path) -> None:
    put(folder, "a b")
    put(folder, "one", PLAIN.format(name="same", description="x"))
    put(folder, "two", PLAIN.format(name="same", description="y"))
    (folder / "empty").mkdir()
    (folder / "file.txt").write_text("no folder")
    put(folder, ".hidden")
    skills = Skills(folder)
    assert [skill.name for skill in skills.listing()] == ["same"]
    assert set(skills.faults()) == {"a b", "two", "empty", "file.txt"}


def test_there_are_bounds_to_how_many_and_how_long(folder: Path) -> None:
    for number in range(105):
        put(folder, f"s{number:03}", PLAIN.format(name=f"s{number:03}", description="long " * 500))
    skills = Skills(folder)
    assert len(skills.listing()) == 100
    assert len(skills.faults()) == 5
    assert all(len(skill.description) <= 300 for skill in skills.listing())


def test_a_file_is_read_again_only_when_it_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    honest = room.read_text

    def counting(file: Path) -> str:
        opened.append(file.parent.name)
        return honest(file)

    monkeypatch.setattr(room, "read_text", counting)
    put(folder, "a")
    put(folder, "b", "---\nbroken: [\n---\n")
    skills = Skills(folder)
    first = skills.listing()
    assert skills.listing() is first
    assert opened == ["a", "b"]
    put(folder, "a", PLAIN.format(name="a", description="New words."))
    assert skills.listing()[0].description == "New words."
    assert opened == ["a", "b", "a"]
    (folder / "a" / "SKILL.md").unlink()
    assert skills.listing() == ()
    put(folder, "c")
    assert [skill.name for skill in skills.listing()] == ["c"]


FRONT = st.one_of(
    st.text(max_size=200),
    st.builds("name: {}\ndescription: {}\n".format, st.text(max_size=30), st.text(max_size=60)),
    st.text(alphabet="&*!%@`{}[]:-#|>'\"\\\t\n ?,<ab1~", max_size=80),
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(front=FRONT, body=st.text(max_size=100))
def test_whatever_stands_in_a_file_it_is_told_plainly_or_left_out(
    folder: Path, front: str, body: str
) -> None:
    skill = folder / "any"
    skill.mkdir(exist_ok=True)
    text = f"---\n{front}\n---\n{body}"
    (skill / "SKILL.md").write_bytes(text.encode("utf-8", "surrogatepass"))
    skills = Skills(folder)
    listed = skills.listing()
    assert len(listed) + len(skills.faults()) == 1
    for one in listed:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", one.name)
        assert 0 < len(one.description) <= 300
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e]", one.description)
    assert prompt_part(listed).count("\n") == len(listed)
