"""What must hold for every file: no address of a registry, no path of one machine, no dead link."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY, files, headings, name_of, pages, prose

# Put together here, so that this file holds none of them itself.
_REGISTRIES = ("py" + "pi.org", "python" + "hosted.org", "npm" + "js.org", "crates" + ".io")
_REGISTRY = re.compile(
    "|".join(re.escape(name) for name in _REGISTRIES)
    + r"|(?:index-url|find-links|INDEX_URL|FIND_LINKS)[ =:]+[\"']?(?:https?|file)://"
)
_PLACES = ("/wo" + "rk/", "/ro" + "ot/", f"{REPOSITORY}/", f"{Path.home()}/")
_MACHINE = re.compile(r"(?<![\w.~$}*…])(?:" + "|".join(map(re.escape, _PLACES)) + ")")
_SOMEONES_HOME = re.compile(r"(?<![\w.~$}*…])/home/")
_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)")


def test_no_file_holds_the_address_of_a_package_registry() -> None:
    assert list(_found(_REGISTRY, files())) == []


def test_no_file_holds_a_path_of_one_machine() -> None:
    assert list(_found(_MACHINE, files())) == []


def test_only_tests_make_up_a_home() -> None:
    others = [file for file in files() if not file.is_relative_to(REPOSITORY / "tests")]
    assert list(_found(_SOMEONES_HOME, others)) == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = page.read_text()
    links = _LINK.findall(re.sub(r"`[^`]*`", "", prose(text)))
    assert [link for link in links if not _leads_somewhere(page, link)] == []


def test_the_index_lists_every_page_for_users() -> None:
    index = (REPOSITORY / "docs" / "index.md").read_text()
    folder = REPOSITORY / "docs"
    written = [page for page in pages() if page.parent in {folder, folder / "reference"}]
    names = [str(page.relative_to(folder)) for page in written if page.name != "index.md"]
    assert [name for name in names if f"({name})" not in index] == []


def _found(pattern: re.Pattern[str], among: list[Path]) -> Iterator[str]:
    for file in among:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if pattern.search(line):
                yield f"{name_of(file)}:{number}: {line.strip()}"


def _leads_somewhere(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(REPOSITORY) or not target.exists():
        return False
    return not anchor or anchor in headings(target.read_text())
