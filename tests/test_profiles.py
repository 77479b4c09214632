"""Profiles: which there are, which are served, which a command works on, and whose work is done."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.profiles import (
    PROFILE_NAME,
    RESERVED_NAMES,
    OutsideScope,
    Profile,
    active_profile,
    check_name,
    default_profile,
    enter_scope,
    find_profile,
    mark_active,
    marked_active,
    named_profile,
    profile_scope,
    profiles_to_serve,
    require_scope,
    scan_profiles,
    scoped_profile,
)
from parley.protocol import ParleyError

DEFAULT = Profile("default", Path("/homes/d"))
CODER = Profile("coder", Path("/homes/d/profiles/coder"))


class Homes:
    """A `PARLEY_HOME` with profiles in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {"PARLEY_HOME": str(root)}
        self.told: list[str] = []

    def make(self, name: str, mark: str = "config.yaml") -> Path:
        home = self.root / "profiles" / name
        home.mkdir(parents=True)
        (home / mark).touch()
        return home

    def scan(self) -> list[str]:
        return [found.name for found in scan_profiles(self.environ, report=self.told.append)]

    def serve(self, *only: str) -> list[str]:
        served = profiles_to_serve(True, only=only, environ=self.environ, report=self.told.append)
        return [name for name, _ in served]

    def active(self, **more: str) -> str:
        return active_profile({**self.environ, **more}).name


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    return Homes(tmp_path / "home")


# ── names ──


@pytest.mark.parametrize("name", ["a", "0", "coder", "my-agent-2", "a" * 32, "a-", "default"])
def test_a_name_may_be(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-a",
        "A",
        "Coder",
        "a_b",
        "a b",
        "a.b",
        "..",
        "a/b",
        "a:b",
        "a" * 33,
        "ä",
        "a\n",
        "\uff41",
    ],
)
def test_a_name_may_not_be(name: str, homes: Homes) -> None:
    with pytest.raises(ParleyError, match="cannot be the name of a profile"):
        check_name(name)
    with pytest.raises(ParleyError):
        named_profile(name, homes.environ)


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_reserved_word_is_refused_as_taken(name: str) -> None:
    assert PROFILE_NAME.fullmatch(name)
    with pytest.raises(ParleyError, match=f"called `{name}`: that word is taken"):
        check_name(name)


@given(st.text(max_size=40))
def test_a_name_that_passes_is_one_plain_folder_below_profiles(name: str) -> None:
    environ = {"PARLEY_HOME": "/homes/d"}
    try:
        check_name(name)
    except ParleyError:
        return
    home = named_profile(name, environ).home
    assert name == "default" or (home.parent, home.name) == (CODER.home.parent, name)


def test_default_is_the_home_itself(homes: Homes) -> None:
    assert default_profile(homes.environ) == ("default", homes.root)
    assert named_profile("default", homes.environ) == default_profile(homes.environ)


def test_a_relative_home_is_made_absolute_and_a_blank_one_is_the_persons_own() -> None:
    assert default_profile({"PARLEY_HOME": "here"}).home == Path.cwd() / "here"
    assert default_profile({"PARLEY_HOME": "  "}).home == Path("~/.parley").expanduser()


# ── which there are ──


def test_a_home_without_profiles_has_default_alone(homes: Homes) -> None:
    assert homes.scan() == ["default"]
    assert not homes.root.exists()
    assert homes.told == []


@pytest.mark.parametrize("mark", ["config.yaml", ".env", "SOUL.md", "parley.db"])
def test_any_file_of_a_profile_makes_it_one(homes: Homes, mark: str) -> None:
    homes.make("coder", mark)
    assert homes.scan() == ["default", "coder"]


def test_default_is_first_and_the_others_by_name(homes: Homes) -> None:
    for name in ("writer", "a2", "coder", "a10"):
        homes.make(name)
    assert homes.scan() == ["default", "a10", "a2", "coder", "writer"]


def test_what_is_no_profile_is_left_out_without_a_word(homes: Homes) -> None:
    homes.make("coder")
    folder = homes.root / "profiles"
    (folder / "empty").mkdir()
    (folder / "notes.txt").touch()
    (folder / "Photos").mkdir()
    (folder / "odd" / "config.yaml").mkdir(parents=True)
    (folder / "main").mkdir()
    assert homes.scan() == ["default", "coder"]
    assert homes.told == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("My Agent", "cannot be the name of a profile"),
        (".hidden", "cannot be the name of a profile"),
        ("main", "that word is taken"),
        ("default", "`default` lives in"),
    ],
)
def test_a_home_with_an_impossible_name_is_told_of_and_not_served(
    homes: Homes, name: str, why: str
) -> None:
    home = homes.make(name)
    homes.make("coder")
    assert homes.scan() == ["default", "coder"]
    [told] = homes.told
    assert told.startswith(f"{home} is not served: ")
    assert why in told


def test_what_cannot_be_served_is_logged_when_nobody_asks(
    homes: Homes, caplog: pytest.LogCaptureFixture
) -> None:
    homes.make("My Agent")
    with caplog.at_level(logging.WARNING):
        scan_profiles(homes.environ)
    assert "My Agent is not served" in caplog.text


def test_a_link_to_a_home_is_a_profile_under_the_links_name(homes: Homes, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk" / "Agents"
    elsewhere.mkdir(parents=True)
    (elsewhere / "SOUL.md").touch()
    folder = homes.root / "profiles"
    folder.mkdir(parents=True)
    (folder / "coder").symlink_to(elsewhere)
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    (folder / "loop").symlink_to(folder / "loop")
    assert homes.scan() == ["default", "coder"]
    assert find_profile("coder", homes.environ).home == folder / "coder"


def test_profiles_that_is_a_file_is_told(homes: Homes) -> None:
    homes.root.mkdir()
    (homes.root / "profiles").touch()
    assert homes.scan() == ["default"]
    assert homes.told == [f"{homes.root / 'profiles'} cannot be read (Not a directory)."]


@contextmanager
def as_nobody() -> Iterator[None]:
    """As someone whom permissions hold back; root may read everything."""
    ours = os.geteuid()
    if ours == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(ours)


@pytest.fixture
def open_homes() -> Iterator[Homes]:
    """Where everyone may look in; pytest's own directories are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Homes(Path(folder) / "home")


def test_a_folder_of_profiles_that_cannot_be_read_is_told(open_homes: Homes) -> None:
    open_homes.make("coder")
    folder = open_homes.root / "profiles"
    folder.chmod(0)
    with as_nobody():
        assert open_homes.scan() == ["default"]
    assert open_homes.told == [f"{folder} cannot be read (Permission denied)."]


def test_one_home_that_cannot_be_read_is_told_and_the_others_are_there(open_homes: Homes) -> None:
    for name in ("coder", "locked", "writer"):
        open_homes.make(name)
    locked = open_homes.root / "profiles" / "locked"
    locked.chmod(0)
    with as_nobody():
        assert open_homes.scan() == ["default", "coder", "writer"]
        with pytest.raises(ParleyError, match=f"{locked} cannot be read"):
            find_profile("locked", open_homes.environ)
    assert open_homes.told == [
        f"{locked} is not served: {locked} cannot be read (Permission denied)."
    ]


def test_a_profile_that_is_not_there_is_one_sentence_that_helps(homes: Homes) -> None:
    homes.make("coder")
    with pytest.raises(ParleyError, match="There is no profile `codr`; did you mean `coder`"):
        find_profile("codr", homes.environ)
    with pytest.raises(ParleyError, match="make it with: parley profile create zebra"):
        find_profile("zebra", homes.environ)
    (homes.root / "profiles" / "zebra").mkdir()
    with pytest.raises(ParleyError, match="There is no profile `zebra`"):
        find_profile("zebra", homes.environ)


# ── which are served ──


def test_without_the_flag_the_active_profile_is_served_alone(homes: Homes) -> None:
    homes.make("coder")
    homes.make("writer")
    assert profiles_to_serve(False, environ=homes.environ) == [("default", homes.root)]
    mark_active("writer", homes.environ)
    [(name, home)] = profiles_to_serve(False, only=["coder"], environ=homes.environ)
    assert (name, home) == ("writer", homes.root / "profiles" / "writer")
    assert profiles_to_serve(False, active=CODER, environ=homes.environ) == [CODER]


def test_with_the_flag_all_are_served_default_first(homes: Homes) -> None:
    for name in ("writer", "coder", "My Agent"):
        homes.make(name)
    mark_active("writer", homes.environ)
    assert homes.serve() == ["default", "coder", "writer"]
    assert len(homes.told) == 1


def test_only_narrows_the_list_and_keeps_its_order(homes: Homes) -> None:
    for name in ("writer", "coder", "cook"):
        homes.make(name)
    assert homes.serve("writer", "default") == ["default", "writer"]
    assert homes.serve("writer", "coder", "writer") == ["coder", "writer"]


def test_only_with_a_name_that_is_not_there_is_an_error(homes: Homes) -> None:
    homes.make("coder")
    (homes.root / "profiles" / "empty").mkdir()
    for name in ("nope", "empty", "main", "Coder"):
        with pytest.raises(ParleyError, match=f"`gateway.profiles` names `{name}`"):
            homes.serve("coder", name)


# ── which one a command works on ──


def test_default_is_active_until_another_is_chosen(homes: Homes) -> None:
    assert homes.active() == "default"
    assert not homes.root.exists()


def test_the_environment_is_above_the_mark_and_the_mark_above_default(homes: Homes) -> None:
    homes.make("coder")
    homes.make("writer")
    mark_active("coder", homes.environ)
    assert homes.active() == "coder"
    assert homes.active(PARLEY_PROFILE="  ") == "coder"
    assert homes.active(PARLEY_PROFILE="writer") == "writer"
    assert homes.active(PARLEY_PROFILE="default") == "default"


def test_marking_default_takes_the_mark_away(homes: Homes) -> None:
    homes.make("coder")
    mark_active("coder", homes.environ)
    assert marked_active(homes.environ) == "coder"
    mark_active("default", homes.environ)
    assert marked_active(homes.environ) is None
    mark_active("default", homes.environ)
    assert homes.active() == "default"


def test_a_mark_can_be_the_first_thing_in_a_home(homes: Homes) -> None:
    mark_active("coder", homes.environ)
    assert marked_active(homes.environ) == "coder"
    assert [file.name for file in homes.root.iterdir()] == ["active_profile"]
    assert homes.root.stat().st_mode & 0o077 == 0


def test_a_blank_mark_is_none(homes: Homes) -> None:
    homes.root.mkdir()
    (homes.root / "active_profile").write_text(" \n")
    assert homes.active() == "default"


@pytest.mark.parametrize("mark", ["coder", "No Name", "../..", "main", "\udcff"])
def test_a_mark_that_names_nobody_is_one_sentence(homes: Homes, mark: str) -> None:
    homes.root.mkdir()
    (homes.root / "active_profile").write_bytes(mark.encode(errors="surrogateescape"))
    with pytest.raises(ParleyError) as caught:
        homes.active()
    assert str(caught.value).count("\n") == 0
    assert homes.active(PARLEY_PROFILE="default") == "default"


def test_a_mark_that_cannot_be_read_or_written_is_one_sentence(homes: Homes) -> None:
    file = homes.root / "active_profile"
    file.mkdir(parents=True)
    with pytest.raises(ParleyError, match=f"{file} cannot be read"):
        homes.active()
    with pytest.raises(ParleyError, match=f"{file} cannot be written"):
        mark_active("coder", homes.environ)
    with pytest.raises(ParleyError, match=f"{file} cannot be written"):
        mark_active("default", homes.environ)


# ── whose work is being done ──


@pytest.fixture
def outside() -> Iterator[None]:
    """Nobody's work is being done, before and after."""
    assert scoped_profile() is None
    yield
    assert scoped_profile() is None


def refusal(profile: Profile) -> str:
    with pytest.raises(OutsideScope) as caught:
        require_scope(profile)
    return str(caught.value)


def test_outside_of_any_scope_nothing_is_given(outside: None) -> None:
    assert refusal(CODER) == (
        "What belongs to the profile `coder` was asked for outside of any profile's scope."
    )


def test_in_a_scope_its_own_profile_is_given_and_no_other(outside: None) -> None:
    with profile_scope(CODER):
        require_scope(CODER)
        assert refusal(DEFAULT) == (
            "What belongs to the profile `default` was asked for in the scope of `coder`."
        )
    assert refusal(CODER)


def test_the_same_name_in_another_home_is_another_profile() -> None:
    with profile_scope(CODER):
        assert refusal(Profile("coder", Path("/elsewhere/profiles/coder")))


def test_an_inner_scope_ends_with_its_block_also_by_an_error(outside: None) -> None:
    with profile_scope(DEFAULT):
        with pytest.raises(ValueError, match="oops"), profile_scope(CODER):
            require_scope(CODER)
            raise ValueError("oops")
        require_scope(DEFAULT)


async def test_a_task_keeps_the_scope_it_was_begun_in(outside: None) -> None:
    go_on = asyncio.Event()

    async def work() -> Profile | None:
        await go_on.wait()
        return scoped_profile()

    with profile_scope(CODER):
        ours = asyncio.create_task(work())
    with profile_scope(DEFAULT):
        theirs = asyncio.create_task(work())
        in_thread = await asyncio.to_thread(scoped_profile)
    nobodys = asyncio.create_task(work())
    go_on.set()
    assert [await ours, await theirs, await nobodys] == [CODER, DEFAULT, None]
    assert in_thread == DEFAULT


async def test_tasks_side_by_side_do_not_see_each_others_scope(outside: None) -> None:
    profiles = [Profile(f"p{number}", Path(f"/homes/{number}")) for number in range(20)]

    async def work(profile: Profile) -> None:
        with profile_scope(profile):
            for _ in range(20):
                await asyncio.sleep(0)
                require_scope(profile)

    await asyncio.gather(*(work(profile) for profile in profiles))


async def test_a_scope_entered_for_good_ends_with_its_task(outside: None) -> None:
    async def command() -> None:
        enter_scope(CODER)
        await asyncio.sleep(0)
        require_scope(CODER)

    await asyncio.create_task(command())


def test_a_thread_of_ones_own_begins_outside() -> None:
    found: list[Profile | None] = []
    with profile_scope(CODER):
        thread = threading.Thread(target=lambda: found.append(scoped_profile()))
        thread.start()
        thread.join()
    assert found == [None]
