"""The reference says what the code says."""

from __future__ import annotations

from docs.generate import REFERENCE, pages

from parley.cli import VERBS
from parley.config import OPTIONAL_ENV_VARS
from parley.config.schema import env_name, leaves


def test_the_reference_is_as_the_code_makes_it() -> None:
    by_hand = {"python.md"}
    files = [file for file in REFERENCE.iterdir() if file.name not in by_hand]
    on_disk = {file.name: file.read_text() for file in files}
    assert on_disk == pages(), "make it again with: python -m docs.generate"


def test_every_setting_is_in_it_with_its_variable() -> None:
    text = pages()["settings.md"]
    for path, leaf in leaves(["NAME"]):
        row = next(line for line in text.splitlines() if line.startswith(f"| `{'.'.join(path)}` "))
        has_none = leaf.holds_sections or leaf.is_mapping
        variable = "" if has_none else f"`{env_name(path)}`"
        assert row.endswith(f"| {variable} |")


def test_what_cannot_be_said_in_a_variable_has_none() -> None:
    text = pages()["settings.md"]
    assert "_ROUTES" not in text
    assert "PARLEY_AGENT_SAFETY" not in text
    assert "_SURFACES_NAME" not in text
    assert "| `sessions.surfaces.NAME.reset` |" in text
    assert "| `profile` | text | required |" in text


def test_every_variable_is_in_it() -> None:
    text = pages()["environment.md"]
    assert [name for name in OPTIONAL_ENV_VARS if f"| `{name}` |" not in text] == []


def test_every_verb_is_in_it_with_its_options() -> None:
    text = pages()["cli.md"]
    assert [verb for verb in VERBS if f"## parley {verb}\n" not in text] == []
    export = text.partition("## parley sessions export\n")[2].partition("\n## ")[0]
    assert all(option in export for option in ("--format", "--output", "--force"))
