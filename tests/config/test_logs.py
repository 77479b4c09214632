"""The log: every line is JSON with a profile, and holds nothing secret."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.profiles import Profile

SECRET = "hunter2hunter2"

HEAD = """
import asyncio, logging, sys, threading, warnings
from pathlib import Path
from parley.config import ConfigError, Redactor, configure_logging
from parley.profiles import Profile, profile_scope
profile = Profile("default", Path(sys.argv[1]))
SECRET = "hunter2hunter2"
"""
SET_UP = "configure_logging(profile, Redactor([SECRET]))\n"


def run(home: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HEAD + script, str(home)], capture_output=True, text=True, timeout=60
    )


def lines(profile: Profile) -> list[dict[str, Any]]:
    text = (profile.logs / "parley.log").read_text()
    assert SECRET not in text
    return [json.loads(line) for line in text.splitlines()]


def test_loggers_write_json_lines_with_a_profile(profile: Profile) -> None:
    done = run(
        profile.home,
        SET_UP
        + "logging.getLogger('lib').info('took %s', 5, extra={'session': 's', 'n': [SECRET]})\n"
        "with profile_scope(Profile('coder', profile.home / 'coder')):\n"
        "    told = {'text': f'x {SECRET}', 'when': {'k': SECRET}}\n"
        "    logging.getLogger('ours').warning('said', extra=told)\n"
        "    async def turn(): logging.getLogger('lib').error('in a task')\n"
        "    asyncio.run(turn())\n"
        "logging.getLogger('lib').debug('not shown')\n",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    first, second, third = [line for line in lines(profile) if line["logger"] in ("lib", "ours")]
    assert first["event"] == "took 5"
    assert (first["profile"], first["level"], first["session"]) == ("default", "info", "s")
    assert (second["profile"], second["logger"], second["level"]) == ("coder", "ours", "warning")
    assert second["text"] == "x [redacted]"
    assert third["profile"] == "coder"


# ── many profiles ──

BESIDE = """
coder = Profile("coder", profile.home / "profiles" / "coder")
writer = Profile("writer", profile.home / "profiles" / "writer")
for one in (coder, writer):
    if not one.home.exists(): one.home.mkdir(parents=True)
"""
SET_UP_ALL = BESIDE + "configure_logging(profile, Redactor([SECRET]), apart=True)\n"


def beside(profile: Profile, name: str) -> Profile:
    return Profile(name, profile.home / "profiles" / name)


def told(profile: Profile) -> list[tuple[str, str]]:
    return [(line["profile"], line["event"]) for line in lines(profile)]


def test_each_profile_has_its_records_in_its_own_file(profile: Profile) -> None:
    done = run(
        profile.home,
        SET_UP_ALL + "log = logging.getLogger('lib')\n"
        "log.info('nobodys')\n"
        "async def turn(what): await asyncio.sleep(0); log.info(what)\n"
        "async def main():\n"
        "    with profile_scope(coder): first = asyncio.create_task(turn(f'coders {SECRET}'))\n"
        "    with profile_scope(writer): second = asyncio.create_task(turn('writers'))\n"
        "    with profile_scope(profile): await turn('defaults')\n"
        "    await first; await second\n"
        "asyncio.run(main())\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert told(profile) == [("default", "nobodys"), ("default", "defaults")]
    assert told(beside(profile, "coder")) == [("coder", "coders [redacted]")]
    assert told(beside(profile, "writer")) == [("writer", "writers")]
    for name in ("coder", "writer"):
        logs = beside(profile, name).logs
        assert stat.S_IMODE(logs.stat().st_mode) == 0o700
        assert stat.S_IMODE((logs / "parley.log").stat().st_mode) == 0o600


def test_a_profile_that_says_nothing_has_no_file(profile: Profile) -> None:
    run(profile.home, SET_UP_ALL + "logging.error('nobodys')\n")
    assert not beside(profile, "coder").logs.exists()


def test_a_home_that_is_gone_is_not_made_again(profile: Profile) -> None:
    run(
        profile.home,
        SET_UP_ALL + "coder.home.rmdir()\nwith profile_scope(coder): logging.error('it is gone')\n",
    )
    assert told(profile) == [("coder", "it is gone")]
    assert not beside(profile, "coder").home.exists()


def test_a_pipe_in_the_place_of_a_log_holds_nobody_up(profile: Profile) -> None:
    logs = beside(profile, "coder").logs
    logs.mkdir(parents=True)
    os.mkfifo(logs / "parley.log")
    run(profile.home, SET_UP_ALL + "with profile_scope(coder): logging.error('still here')\n")
    assert told(profile) == [("coder", "still here")]


@pytest.mark.parametrize("place", ["coder", "coder/logs", "coder/logs/parley.log"])
def test_a_home_that_cannot_be_written_is_told_of_in_the_first_log(
    profile: Profile, place: str
) -> None:
    blocked = profile.home / "profiles" / place
    blocked.parent.mkdir(parents=True)
    blocked.mkdir() if place.endswith(".log") else blocked.touch()
    done = run(
        profile.home,
        SET_UP_ALL + "with profile_scope(coder): logging.error('disk full')\n"
        "with profile_scope(writer): logging.error('fine')\n"
        f"blocked = profile.home / 'profiles' / '{place}'\n"
        "blocked.rmdir() if blocked.is_dir() else blocked.unlink()\n"
        "coder.home.mkdir(exist_ok=True)\n"
        "with profile_scope(coder): logging.error('mended')\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert told(profile) == [("coder", "disk full")]
    assert told(beside(profile, "coder")) == [("coder", "mended")]
    assert told(beside(profile, "writer")) == [("writer", "fine")]


def test_threads_log_for_the_profile_they_work_for(profile: Profile) -> None:
    done = run(
        profile.home,
        SET_UP_ALL + "def work(whose, what):\n"
        "    with profile_scope(whose):\n"
        "        for n in range(200): logging.error('%s %d', what, n)\n"
        "all_of_them = ((profile, 'd'), (coder, 'c'), (writer, 'w'), (coder, 'c2'))\n"
        "threads = [threading.Thread(target=work, args=each) for each in all_of_them]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
        "with profile_scope(writer): asyncio.run(asyncio.to_thread(logging.error, 'handed on'))\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    for name, words in (("default", {"d"}), ("coder", {"c", "c2"}), ("writer", {"w", "handed"})):
        home = profile if name == "default" else beside(profile, name)
        found = told(home)
        assert {who for who, _ in found} == {name}
        assert {what.split()[0] for _, what in found} == words
        assert len(found) == sum(1 if word == "handed" else 200 for word in words)


def test_being_set_up_again_leaves_nothing_behind(profile: Profile) -> None:
    done = run(
        profile.home,
        SET_UP_ALL + "with profile_scope(coder): logging.error('one')\n"
        "configure_logging(profile, Redactor([SECRET]))\n"
        "with profile_scope(coder): logging.error('two')\n"
        "print(len(logging.root.handlers))\n",
    )
    assert done.stdout == "1\n"
    assert told(beside(profile, "coder")) == [("coder", "one")]
    assert told(profile) == [("coder", "two")]


def test_errors_and_their_tracebacks_are_redacted(profile: Profile) -> None:
    run(
        profile.home,
        SET_UP + "try: raise ValueError(f'bad {SECRET}')\n"
        "except ValueError as error:\n"
        "    logging.getLogger('lib').exception('failed %s', error)\n"
        "    logging.getLogger('ours').exception('failed', extra={'error': error})\n",
    )
    first, second = lines(profile)
    for line in (first, second):
        assert "Traceback" in line["exception"]
        assert "ValueError: bad [redacted]" in line["exception"]


def test_an_uncaught_error_is_one_sentence_on_the_screen_and_whole_in_the_log(
    profile: Profile,
) -> None:
    done = run(profile.home, SET_UP + "raise RuntimeError(f'oops {SECRET}')\n")
    assert done.returncode == 1
    assert done.stderr == (
        "parley: Something went wrong inside Parley (RuntimeError); "
        f"the details are in {profile.logs / 'parley.log'}.\n"
    )
    assert "oops [redacted]" in lines(profile)[-1]["exception"]


def test_threads_tasks_warnings_and_finalizers_are_caught_too(profile: Profile) -> None:
    done = run(
        profile.home,
        SET_UP + "def boom(): raise RuntimeError(f'in thread {SECRET}')\n"
        "t = threading.Thread(target=boom); t.start(); t.join()\n"
        "warnings.warn(f'careful {SECRET}')\n"
        "async def main(): asyncio.get_running_loop().call_soon(boom); await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
        "class Gone:\n"
        "    def __del__(self): raise RuntimeError(f'in del {SECRET}')\n"
        "gone = Gone(); del gone\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.dumps(lines(profile))
    for what in ("in thread", "careful", "Exception in callback", "in del"):
        assert what in told


def test_handlers_that_were_there_before_write_nothing_unredacted(profile: Profile) -> None:
    done = run(
        profile.home,
        "logging.basicConfig(level=logging.DEBUG)\n"
        "lib = logging.getLogger('lib'); lib.propagate = False\n"
        "lib.addHandler(logging.StreamHandler(sys.stdout))\n"
        + SET_UP
        + "lib.error(f'x {SECRET}'); logging.error('y %s', SECRET)\n",
    )
    assert done.stdout + done.stderr == ""
    assert [line["event"] for line in lines(profile)] == ["x [redacted]", "y [redacted]"]


def test_the_screen_speaks_only_when_asked(profile: Profile) -> None:
    done = run(
        profile.home,
        "configure_logging(profile, Redactor([SECRET]), console=True, level='debug')\n"
        "logging.getLogger('parley').debug('hello %s', SECRET, extra={'a': 1})\n",
    )
    assert done.stdout == ""
    assert done.stderr.rstrip().endswith("debug   hello [redacted] a=1")


def test_a_line_that_cannot_be_made_shows_no_traceback(profile: Profile) -> None:
    done = run(
        profile.home, SET_UP + "logging.error('%d', 'no number'); logging.error('fine \\udcff')\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert lines(profile)[-1]["event"].startswith("fine")


def test_the_log_is_private_and_bounded(profile: Profile) -> None:
    run(
        profile.home,
        "import parley.config.logs as logs\nlogs._LARGEST = 20_000\n"
        + SET_UP
        + "text = 'x' * 500\n"
        "for _ in range(400): logging.error(text)\n"
        "logging.error('y' * 1_000_000)\n",
    )
    files = sorted(profile.logs.iterdir())
    assert [file.name for file in files] == ["parley.log", *(f"parley.log.{n}" for n in (1, 2, 3))]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert stat.S_IMODE(profile.logs.stat().st_mode) == 0o700
    assert all(file.stat().st_size < 40_000 for file in files)
    assert lines(profile)[-1]["cut"] is True


def test_another_process_may_rotate_the_file_away(profile: Profile) -> None:
    run(
        profile.home,
        SET_UP + "logging.error('one')\n"
        "(profile.logs / 'parley.log').rename(profile.logs / 'parley.log.1')\n"
        "logging.error('two')\n",
    )
    assert [line["event"] for line in lines(profile)] == ["two"]


@pytest.mark.parametrize("place", ["logs", "logs/parley.log"])
def test_a_log_that_cannot_be_written_is_told(profile: Profile, place: str) -> None:
    if place == "logs":
        profile.logs.write_text("")
    else:
        (profile.logs / "parley.log").mkdir(parents=True)
    done = run(
        profile.home,
        "try: configure_logging(profile, Redactor())\nexcept ConfigError as error: print(error)\n",
    )
    assert done.stdout.startswith("Cannot ")
    assert str(profile.home / place) in done.stdout


def test_importing_the_room_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, parley.config.env, parley.config.logs, parley.config.secrets\n"
            "heavy = {'pydantic', 'ruamel.yaml', 'dotenv', 'aiohttp'}\n"
            "print(heavy & set(sys.modules))",
        ],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "set()\n"


def test_debugging_parley_does_not_debug_the_libraries(profile: Profile) -> None:
    run(
        profile.home,
        "configure_logging(profile, Redactor([SECRET]), level='debug')\n"
        "logging.getLogger('parley.x').debug('ours')\n"
        "logging.getLogger('markdown_it').debug('theirs')\n",
    )
    assert [line["event"] for line in lines(profile)] == ["ours"]
