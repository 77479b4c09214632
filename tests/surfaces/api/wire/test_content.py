"""Pictures, files and recordings inside messages: what is taken, kept, and refused."""

from __future__ import annotations

import base64
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.protocol import Attachment, ChatMessage, ParleyError
from parley.storage.attachments import clean_name
from parley.surfaces.api.wire import BadRequest, content
from parley.surfaces.api.wire.chat_in import read_chat
from parley.surfaces.api.wire.content import attachments_keeper
from parley.surfaces.api.wire.files import LARGEST_FILE
from tests.surfaces.api.wire.builders import GIF, JPEG, PDF, PNG, WEBP, Kept, data_url, user


def read(*parts: dict[str, Any], keep: Any = None) -> ChatMessage:
    return read_chat({"messages": [user(list(parts))]}, keep or Kept()).messages[0]


def refused(*parts: dict[str, Any]) -> BadRequest:
    with pytest.raises(BadRequest) as found:
        read(*parts)
    return found.value


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


def file(**fields: Any) -> dict[str, Any]:
    return {"type": "file", "file": fields}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# ── what is taken ──


def test_words_and_pictures_of_one_message() -> None:
    kept = Kept()
    said = read(
        {"type": "text", "text": "What"},
        picture(data_url(PNG)),
        {"type": "text", "text": "is this?"},
        {"type": "input_image", "image_url": data_url(GIF, "image/gif")},
        keep=kept,
    )
    assert said.text == "What\nis this?"
    assert kept.files == [("image.png", "image/png", PNG), ("image.gif", "image/gif", GIF)]
    assert [item.path for item in said.attachments] == ["/kept/1", "/kept/2"]


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (WEBP, "image/webp"),
    ],
)
def test_the_first_bytes_say_what_a_picture_is(data: bytes, media_type: str) -> None:
    said = read(picture(data_url(data, "image/png")))
    assert said.attachments[0].media_type == media_type


def test_files_in_each_form() -> None:
    kept = Kept()
    read(
        file(filename="report.pdf", file_data=data_url(PDF, "application/pdf")),
        file(filename="notes.md", file_data=b64(b"# Notes")),
        file(file_data=b64(PDF)),
        {"type": "input_file", "filename": "a.csv", "file_data": b64(b"1,2")},
        {"type": "input_file", "filename": "x", "file_data": data_url(b"hello", "text/plain")},
        {"type": "input_audio", "input_audio": {"data": b64(b"RIFFwave"), "format": "wav"}},
        keep=kept,
    )
    assert [(name, media_type) for name, media_type, _ in kept.files] == [
        ("report.pdf", "application/pdf"),
        ("notes.md", "text/markdown"),
        ("file", "application/pdf"),
        ("a.csv", "text/csv"),
        ("x", "text/plain"),
        ("audio.wav", "audio/wav"),
    ]


def test_what_only_says_it_is_a_pdf_is_no_pdf() -> None:
    said = read(file(filename="a.pdf", file_data=data_url(b"MZ...", "application/pdf")))
    assert said.attachments[0].media_type == "application/octet-stream"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://example.org/pics/cat%20one.png?size=2", "cat one.png"),
        ("http://example.org", "image"),
        ("HTTPS://example.org/", "image"),
        ("https://example.org/a/%2e%2e%2fpasswd", "passwd"),
    ],
)
def test_a_picture_on_the_web_stays_there(url: str, name: str) -> None:
    kept = Kept()
    (item,) = read(picture(url), keep=kept).attachments
    assert (item.name, item.media_type, item.size) == (name, "image/*", 0)
    assert item.is_remote
    assert item.path.lower() == url.lower()
    assert kept.files == []


def test_a_file_on_the_web_stays_there() -> None:
    (item,) = read({"type": "input_file", "file_url": "https://example.org/r.pdf"}).attachments
    assert item == Attachment("r.pdf", "application/pdf", "https://example.org/r.pdf", 0)


# ── what is refused ──


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/a.png",
        "javascript:alert(1)",
        "//example.org/a.png",
        "/etc/passwd",
        "https://",
        "https://[::1",
        "https://exam ple.org/a",
        "https://example.org/\n",
        "https://example.org/" + "a" * 9000,
        "",
        "data:image/png;base64",
        "data:,",
        "data:image/png," + b64(PNG),
        "data:image/png;base64," + b64(PNG) + "!",
        "data:image/png;base64,AAA",
        "data:image/png;base64,é",
        "data:image/png;base64,",
        "data:<svg>;base64,AAAA",
        "data:image/png\r\nx;base64,AAAA",
        data_url(PDF, "application/pdf"),
        data_url(b"<html>", "text/html"),
        data_url(b"no picture", "image/png"),
    ],
)
def test_what_is_no_picture_is_refused(url: str) -> None:
    error = refused({"type": "text", "text": "x"}, picture(url))
    assert error.param == "messages[0].content[1].image_url.url"
    assert len(error.message) < 200


@pytest.mark.parametrize(
    ("part", "param"),
    [
        (file(file_id="file-1"), ".file.file_id"),
        ({"type": "input_file", "file_id": "file-1"}, ".file_id"),
        ({"type": "input_image", "file_id": "file-1"}, ".file_id"),
        ({"type": "file"}, ".file"),
        (file(filename="x"), ".file.file_data"),
        ({"type": "input_file", "file_url": "file:///etc/passwd"}, ".file_url"),
        ({"type": "image_url"}, ".image_url"),
        ({"type": "text"}, ".text"),
        ({"type": "refusal"}, ".refusal"),
        ({"type": "input_audio"}, ".input_audio"),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "exe"}},
            ".input_audio.format",
        ),
        ({"type": "video"}, ".type"),
    ],
)
def test_a_part_that_lacks_what_it_needs_is_refused(part: dict[str, Any], param: str) -> None:
    assert refused(part).param == f"messages[0].content[0]{param}"


def test_a_file_may_be_so_large_and_no_larger() -> None:
    assert read(file(file_data=b64(b"x" * LARGEST_FILE))).attachments[0].size == LARGEST_FILE
    error = refused(file(file_data=b64(b"x" * (LARGEST_FILE + 3))))
    assert error.code == "file_too_large"
    assert "20 MB" in error.message


def test_files_are_counted_and_weighed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    small = file(file_data=b64(b"x"))
    assert refused(*[small] * (content.MOST_FILES + 1)).code == "too_many_files"
    monkeypatch.setattr(content, "LARGEST_IN_ALL", 10)
    half = file(file_data=b64(b"x" * 6))
    assert len(read(half).attachments) == 1
    assert refused(half, half).code == "file_too_large"


# ── names ──


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("a.pdf", "a.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\a.pdf", "a.pdf"),
        ("a\nb\x00.txt", "ab.txt"),
        ("fdp\u202egnp.exe", "fdpgnp.exe"),
        ("  two   words.txt ", "two words.txt"),
        ("..", "file"),
        (".", "file"),
        ("", "file"),
        ("/", "file"),
        ("x" * 500 + ".pdf", "x" * 116 + ".pdf"),
    ],
)
def test_a_name_is_only_a_name(given_name: str, name: str) -> None:
    assert clean_name(given_name, otherwise="file") == name


@given(st.text(max_size=300))
def test_any_name_becomes_one_that_can_be_shown(text: str) -> None:
    name = clean_name(text, otherwise="file")
    assert 1 <= len(name) <= 120
    assert name.isprintable()
    assert not set(name) & set("/\\")
    assert name not in {".", ".."}


# ── keeping ──


def test_files_are_kept_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    keep = attachments_keeper(tmp_path / "new" / "attachments")
    one, two = keep("a.png", "image/png", PNG), keep("b.png", "image/png", PNG)
    other = keep("a.gif", "image/gif", GIF)
    assert one.path == two.path != other.path
    assert (one.name, two.name, one.size) == ("a.png", "b.png", len(PNG))
    assert Path(one.path).read_bytes() == PNG
    directory = Path(one.path).parent
    assert len(list(directory.iterdir())) == 2
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(one.path).stat().st_mode) == 0o600


def test_a_directory_that_others_could_read_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / "attachments"
    directory.mkdir(mode=0o755)
    attachments_keeper(directory)("a", "image/png", PNG)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_file_that_was_damaged_is_written_again(tmp_path: Path) -> None:
    keep = attachments_keeper(tmp_path)
    path = Path(keep("a", "image/png", PNG).path)
    path.write_bytes(b"half")
    assert Path(keep("a", "image/png", PNG).path).read_bytes() == PNG


def test_many_at_once_keep_the_same_file(tmp_path: Path) -> None:
    keep = attachments_keeper(tmp_path)
    data = PNG * 10_000
    threads = [threading.Thread(target=keep, args=("a", "image/png", data)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == data


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ParleyError) as found:
        attachments_keeper(blocked / "attachments")("a.png", "image/png", PNG)
    assert not isinstance(found.value, BadRequest)
