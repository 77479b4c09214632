"""`parley doctor` on budgets that cannot be kept, and on questions that nobody can answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Parley

_PRICED = "model: {provider: box}\nproviders: {box: {base_url: 'http://127.0.0.1:9/v1', model: m1}}"


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Parley(home, {"PARLEY_CACHE": str(tmp_path / "cache")})


def found(parley: Parley, check: str, settings: str) -> list[dict[str, Any]]:
    parley.profile.config_file.write_text(f"{settings}\n")
    report = parley.json("doctor", "--offline", "--json")
    return [one for one in report["checks"] if one["check"] == check]


@pytest.mark.parametrize(
    "settings",
    [
        _PRICED,
        f"{_PRICED}\nbudgets: {{user: {{day_tokens: 1000}}}}",
        f"{_PRICED}\nbudgets: {{user: {{day_money: 1}}}}\nprices: {{m1: {{input: 1, output: 2}}}}",
        "budgets: {profile: {month_money: 5}}",
    ],
)
def test_a_budget_that_can_be_kept_is_fine(parley: Parley, settings: str) -> None:
    assert [one["level"] for one in found(parley, "budgets", settings)] == ["ok"]


def test_a_budget_in_money_for_a_model_of_unknown_price_is_a_fault(parley: Parley) -> None:
    [one] = found(parley, "budgets", f"{_PRICED}\nbudgets: {{session: {{day_money: 1}}}}")
    assert one["level"] == "fault"
    assert "set `prices.m1` (`input` and `output`" in one["what"]
    assert "config.yaml" in one["mend"]


def test_where_no_sandbox_holds_commands_and_nobody_owns_a_chat_it_is_noted(parley: Parley) -> None:
    chat = "surfaces: {webhook: {enabled: true, callback_url: 'http://127.0.0.1:9'}}"
    off = "terminal: {sandbox: 'off'}"
    [one] = found(parley, "owners", f"{chat}\n{off}")
    assert one["level"] == "note"
    assert "access.owners names nobody on webhook" in one["what"]
    assert one["mend"] == "parley config set access.owners webhook:USER"
    assert parley.shell(one["mend"]).returncode == 0
    assert found(parley, "owners", f"{chat}\n{off}\naccess: {{owners: ['webhook:ann']}}") == []
    assert found(parley, "owners", off) == []
    assert found(parley, "owners", f"{chat}\n{off}\nagent: {{tools: [now]}}") == []
