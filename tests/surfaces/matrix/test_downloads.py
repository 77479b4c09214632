"""Files of messages, from a real homeserver: plain and encrypted, too large, broken, gone."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from parley.protocol import ParleyError
from parley.surfaces.matrix import downloads
from parley.surfaces.matrix.connection import Connection, part
from parley.surfaces.matrix.downloads import fetch, take_in
from parley.surfaces.matrix.incoming import Said, understand
from parley.surfaces.matrix.receipts import Receipts
from parley.surfaces.matrix.remote_files import RemoteFile, Seal
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.listener import Listener, connected
from tests.surfaces.matrix.person import Person
from tests.waiting import until

_PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 3000
_MOST = 1_000_000


def _said(event: Mapping[str, Any]) -> Said:
    said = understand(event, most_bytes=_MOST)
    assert isinstance(said, Said)
    return said


def _kept(into: Path) -> list[str]:
    return sorted(path.name for path in into.iterdir()) if into.is_dir() else []


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_files_come_in_whole_and_what_cannot_be_had_is_told_in_the_message(
    synapse: Synapse, tmp_path: Path, encrypted: bool
) -> None:
    into = tmp_path / "files"
    async with (
        Person.on(synapse) as alice,
        connected(synapse, tmp_path) as connection,
        Listener(connection).listening() as bot,
    ):
        room = await alice.create_dm(connection.user_id, encrypted=encrypted)
        await bot.join(room)
        await alice.wait_for_member(room, connection.user_id)
        await alice.send_file(
            room,
            _PICTURE,
            name="../cat.png",
            media_type="image/png",
            msgtype="m.image",
            caption="Our cat",
        )
        said = _said(await bot.wait_for_said("Our cat"))
        text, (picture,) = await take_in(connection, said, into, most_bytes=_MOST, within=20)
        assert text == "Our cat"
        assert (picture.name, picture.media_type) == ("cat.png", "image/png")
        assert picture.size == len(_PICTURE)
        assert Path(picture.path).read_bytes() == _PICTURE
        assert Path(picture.path) == into / hashlib.sha256(_PICTURE).hexdigest()
        assert Path(picture.path).stat().st_mode & 0o077 == 0

        text, files = await take_in(connection, said, into, most_bytes=1000, within=20)
        assert files == ()
        assert text == ("Our cat\n\n[The file “cat.png” was not taken in: it is larger than 1 kB.]")

        gone = replace(said, text="", files=(replace(said.files[0], media_id="nowhere"),))
        text, files = await take_in(connection, gone, into, most_bytes=_MOST, within=20)
        assert (text, files) == (
            "[The file “cat.png” was not taken in: the homeserver refused it (404).]",
            (),
        )
        assert _kept(into) == [Path(picture.path).name], "nothing stays of what failed"


async def test_a_file_that_was_changed_on_its_way_is_not_opened(
    synapse: Synapse, tmp_path: Path
) -> None:
    into = tmp_path / "files"
    async with Person.on(synapse) as alice, connected(synapse, tmp_path) as connection:
        uri = await alice.upload(b"this was never encrypted")
        server, media_id = uri.removeprefix("mxc://").split("/")
        right = Seal(key="A" * 43, iv="A" * 22, sha256="A" * 43)
        file = RemoteFile(server, media_id, "x.bin", "application/octet-stream", seal=right)
        with pytest.raises(ParleyError, match="it is not the one that was sent"):
            await fetch(connection, file, into, most_bytes=_MOST, within=20)
        for broken in (replace(right, key="!"), replace(right, iv="AAAA")):
            with pytest.raises(ParleyError, match="its key cannot be used"):
                await fetch(
                    connection, replace(file, seal=broken), into, most_bytes=_MOST, within=20
                )
        assert _kept(into) == []


async def test_older_homeservers_and_those_that_do_not_answer(
    synapse: Synapse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = tmp_path / "files"
    async with Person.on(synapse) as alice, connected(synapse, tmp_path) as connection:
        uri = await alice.upload(b"old but good", "text/plain")
        server, media_id = uri.removeprefix("mxc://").split("/")
        file = RemoteFile(server, media_id, "old.txt", "text/plain")
        ways = ("/_matrix/client/v1/unknown/download", "/_matrix/client/v1/media/download")
        monkeypatch.setattr(downloads, "_WAYS", ways)
        kept = await fetch(connection, file, into, most_bytes=_MOST, within=20)
        assert Path(kept.path).read_bytes() == b"old but good"
        assert kept.media_type == "text/plain"

        synapse.pause()
        try:
            with pytest.raises(ParleyError, match=r"it did not come within 0.3 s"):
                await fetch(connection, file, into, most_bytes=_MOST, within=0.3)
        finally:
            synapse.resume()
        connection.nio.homeserver = "http://127.0.0.1:9"
        with pytest.raises(ParleyError, match="the homeserver cannot be reached"):
            await fetch(connection, file, into, most_bytes=_MOST, within=5)


async def test_a_file_that_never_ends_is_cut_off(synapse: Synapse, tmp_path: Path) -> None:
    """From a homeserver that does not say how large it is."""
    into, sent = tmp_path / "files", 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        while sent < 100 * _MOST:
            await answer.write(b"x" * 65_536)
            sent += 65_536
        return answer

    app = web.Application()
    app.router.add_get("/{rest:.*}", endless)
    async with TestServer(app) as server, connected(synapse, tmp_path) as connection:
        connection.nio.homeserver = str(server.make_url("")).rstrip("/")
        file = RemoteFile("localhost", "abc", "endless", "text/plain")
        with pytest.raises(ParleyError, match="it is larger than 1 MB"):
            await fetch(connection, file, into, most_bytes=_MOST, within=20)
        assert sent < 50 * _MOST
        assert _kept(into) == []


async def test_people_see_what_was_read_in_the_room_and_in_threads(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with Person.on(synapse) as alice, connected(synapse, tmp_path) as connection:
        room = await alice.create_dm(connection.user_id, encrypted=False)
        await connection.call("POST", f"/v3/rooms/{part(room)}/join", {})
        sent = [await alice.send(room, f"number {number}") for number in range(5)]
        receipts = Receipts(connection)
        for event in sent:
            receipts.read(room, event)
        reader = (room, connection.user_id)
        await until(lambda: alice.receipts.get(reader) == sent[-1])
        threaded = await alice.in_thread(room, sent[0], "in a thread")
        receipts.read(room, threaded, sent[0])
        await until(lambda: alice.receipts.get(reader) == threaded)
        receipts.read("!nowhere:localhost", sent[0])
        await _nothing_runs(receipts)
        await receipts.close()


async def _nothing_runs(receipts: Receipts) -> None:
    await until(lambda: not receipts._tasks)


async def test_receipts_that_wait_are_overtaken(synapse: Synapse, tmp_path: Path) -> None:
    async with Person.on(synapse) as alice, connected(synapse, tmp_path) as connection:
        room = await alice.create_dm(connection.user_id, encrypted=False)
        await connection.call("POST", f"/v3/rooms/{part(room)}/join", {})
        sent = [await alice.send(room, f"number {number}") for number in range(6)]
        calls = _count_calls(connection)
        receipts = Receipts(connection)
        receipts.read(room, sent[0])
        await asyncio.sleep(0)
        for event in sent[1:]:
            receipts.read(room, event)
        await _nothing_runs(receipts)
        assert [path.rpartition("/")[2] for path in calls] == [part(sent[0]), part(sent[-1])]


def _count_calls(connection: Connection) -> list[str]:
    calls: list[str] = []
    call = connection.call

    async def counted(method: str, path: str, *rest: Any, **more: Any) -> dict[str, Any]:
        calls.append(path)
        return await call(method, path, *rest, **more)

    connection.call = counted  # type: ignore[method-assign]
    return calls
