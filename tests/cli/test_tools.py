"""`parley tools`, run as a person or a script runs it, in a real home."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.config.settings import DEFAULT_TOOLS
from tests.cli.command import Parley
from tests.cli.profile_homes import made

_SERVER = Path(__file__).parents[1] / "servers" / "mcp_server.py"
_TOKEN = "a-token-nobody-may-read-42"


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Parley(home, {"PARLEY_CACHE": str(tmp_path / "cache")})


def configure(parley: Parley, settings: str) -> None:
    parley.profile.config_file.write_text(settings)


def skill(parley: Parley, name: str, text: str) -> None:
    folder = parley.home / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)


def refused(parley: Parley, *arguments: str) -> str:
    """The one sentence a command is refused with."""
    done = parley.run("tools", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("parley: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("parley: ").rstrip("\n")


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows}


def test_every_tool_is_listed_with_whether_it_asks_and_what_it_costs(parley: Parley) -> None:
    told = parley.json("tools", "--json")
    rows = by_name(told["tools"])
    assert set(rows) == set(DEFAULT_TOOLS) - {"mcp", "read_skill", "web_search"}
    assert rows["terminal"]["asks"] == "sometimes"
    assert rows["now"]["asks"] == "no"
    assert told["bytes"] == sum(row["bytes"] for row in rows.values())
    said = parley.run("tools").stdout
    lines = [re.split(r"  +", line.strip()) for line in said.splitlines()]
    for row in rows.values():
        assert [row["name"], row["asks"], str(row["bytes"]), row["description"]] in lines
    assert said.startswith("Tools of `default`; the model is told ")


def test_looking_makes_nothing(parley: Parley) -> None:
    configure(parley, f"mcp: {{real: {{command: {sys.executable}, args: [{_SERVER}, stdio]}}}}\n")
    parley.run("tools")
    assert [file.name for file in parley.home.iterdir()] == ["config.yaml"]


def test_a_surface_has_the_tools_of_its_own_list(parley: Parley) -> None:
    configure(parley, "agent:\n  tools: [now, todo]\n  surfaces: {webhook: [web_fetch]}\n")
    assert list(by_name(parley.json("tools", "--json")["tools"])) == ["now", "todo"]
    there = parley.json("tools", "--surface", "webhook", "--json")
    assert (there["surface"], list(by_name(there["tools"]))) == ("webhook", ["web_fetch"])
    elsewhere = parley.json("tools", "--surface", "api", "--json")
    assert list(by_name(elsewhere["tools"])) == ["now", "todo"]
    assert "Other tools on `webhook`: web_fetch\n" in parley.run("tools").stdout
    sentence = refused(parley, "--surface", "web\x1b[2J")
    assert (
        sentence
        == "There is no surface 'web[2J'; there are api, direct, matrix, terminal, webhook."
    )


def test_each_profile_has_its_own(parley: Parley) -> None:
    made(parley, "coder", settings="agent: {tools: [now]}\n")
    told = parley.json("tools", "--json", "--profile", "coder")
    assert (told["profile"], list(by_name(told["tools"]))) == ("coder", ["now"])
    assert "no profile `nobody`" in refused(parley, "--profile", "nobody")


def test_a_tool_that_does_not_exist_is_one_sentence(parley: Parley) -> None:
    configure(parley, "agent: {tools: [now, terminl]}\n")
    sentence = refused(parley)
    assert sentence == "There is no tool `terminl` (setting agent.tools); did you mean `terminal`?"
    configure(parley, "agent: {tools: now}\n")
    assert "`agent.tools` wants a list" in refused(parley)


def test_skills_are_listed_and_a_broken_one_says_why(parley: Parley) -> None:
    skill(parley, "invoice", "# Write an invoice.\x1b[2J\nUse A4.\n")
    skill(parley, "vague", "---\nname: vague\n---\nDo it.\n")
    told = parley.json("tools", "--json")
    assert "read_skill" in by_name(told["tools"])
    skills = by_name(told["skills"])
    assert skills["vague"]["fault"].startswith("Its `description` is missing")
    said = parley.run("tools").stdout
    assert "\x1b" not in said
    assert "  vague    FAULT: Its `description` is missing" in said


def test_servers_are_not_started_but_a_wrong_setting_is_seen(parley: Parley) -> None:
    configure(
        parley,
        "mcp:\n"
        f"  good: {{command: {sys.executable}, args: [-c, 'import no_such_thing']}}\n"
        "  both: {command: a, url: 'http://127.0.0.1:9'}\n"
        "  gone: {command: no-such-program}\n"
        "  kept: {command: no-such-program, enabled: false}\n",
    )
    done = parley.run("tools")
    assert done.returncode == 0
    listed = done.stdout.partition("MCP servers\n")[2].partition("\n\n")[0]
    assert listed.splitlines() == [
        "  both  FAULT: It needs either `command` or `url` in config.yaml, and not both.",
        "  gone  FAULT: There is no program no-such-program: install it, or name its path.",
        "  good  asked when a gateway runs",
        "  kept  turned off",
    ]


def test_a_name_cannot_steer_the_terminal(parley: Parley) -> None:
    configure(parley, 'mcp: {"e\\e[2J": {command: a, enabled: false}}\n')
    assert "  e[2J  turned off\n" in parley.run("tools").stdout
    assert parley.json("tools", "--json")["mcp"][0]["name"] == "e\x1b[2J"


def test_a_check_starts_the_servers_and_ends_them(parley: Parley, tmp_path: Path) -> None:
    log = tmp_path / "pids"
    noted = f"import os; open({str(log)!r}, 'a').write(f'{{os.getpid()}}\\n'); "
    run = f"{noted}import runpy, sys; sys.argv = ['s', 'stdio']; runpy.run_path({str(_SERVER)!r}, "
    program = tmp_path / "server.py"
    program.write_text(f"{run}run_name='__main__')\n")
    configure(parley, f"mcp:\n  real: {{command: {sys.executable}, args: ['{program}']}}\n")
    done = parley.run("tools", "--check", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = parley.json("tools", "--check", "--json")
    [server] = told["mcp"]
    rows = by_name(server["tools"])
    assert (server["fault"], rows["real__echo"]["asks"]) == (None, "no")
    assert rows["real__send_email"]["asks"] == "yes"
    near = sum(row["bytes"] for row in told["tools"])
    assert told["bytes"] == near + sum(row["bytes"] for row in rows.values())
    pids = log.read_text().split()
    assert pids
    assert [pid for pid in pids if Path("/proc", pid).exists()] == []


def test_a_check_of_a_server_that_does_not_work_ends_with_one(parley: Parley) -> None:
    configure(
        parley,
        f"agent: {{tools: [now]}}\nmcp:\n  bad: {{command: {sys.executable}, "
        "args: [-c, 'import os, sys; sys.exit(3)'], secrets: [BAD_TOKEN]}\n",
    )
    parley.profile.env_file.write_text(f"BAD_TOKEN={_TOKEN}\n")
    parley.profile.env_file.chmod(0o600)
    done = parley.run("tools", "--check")
    assert (done.returncode, done.stderr) == (1, "")
    assert "MCP servers: not offered, `mcp` is not among the tools\n  bad  FAULT: " in done.stdout
    assert _TOKEN not in done.stdout


def test_it_says_when_nobody_is_offered_the_tools(parley: Parley) -> None:
    assert "local · smollm2 is not offered any of them" in parley.run("tools").stdout
    configure(parley, "local: {tools: 'on'}\n")
    assert "not offered" not in parley.run("tools").stdout
    configure(parley, "gateway: {proxy_url: 'http://127.0.0.1:9'}\n")
    assert "A remote agent answers, with tools of its own" in parley.run("tools").stdout


def test_a_shell_completes_the_names_of_surfaces(parley: Parley) -> None:
    asked = {"_PARLEY_COMPLETE": "complete_bash", "COMP_WORDS": "parley tools --surface we"}
    done = Parley(parley.home, {**asked, "COMP_CWORD": "3"}).run()
    assert done.stdout.split() == ["webhook"]
