"""The hand of one profile: children that see its workspace alone, started when they are needed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.agent.tools.base import ToolError
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.agent.disk_quota import DiskQuota
    from parley.agent.sandbox import Sandbox
    from parley.agent.tools.files.child import Child

__all__ = ["FileHand"]

_LONGEST_REQUEST = 40_000_000
_MOST_CHILDREN = 3
_HERE = Path(__file__).parent
_BEGIN = "import sys; sys.path.append(sys.argv.pop(1)); from hand.serving import main; main()"
_WRITES = frozenset({"write", "edit"})
_LARGEST_WRITE = 10_000_000
_KNOWN = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_ENDED = "The file tools ended before they were done: try again."


class FileHand:
    """`sandbox` tells, when it is needed, what the children run in; of `environment` they know
    where programs are and no more. A child that takes longer than `seconds` is killed; one that
    had nothing to do for `idle_seconds` ends by itself, as it does when we are gone. In `private`
    are the folders of conversations, of which each request may reach its own. What is written
    stays within `quota`.
    """

    def __init__(
        self,
        workspace: Path,
        *,
        sandbox: Callable[[], Sandbox],
        environment: Mapping[str, str],
        private: Path | None = None,
        quota: DiskQuota | None = None,
        seconds: float = 20.0,
        idle_seconds: float = 300.0,
    ) -> None:
        self.workspace = workspace
        self.quota = quota
        self._private = private
        self._sandbox = sandbox
        self._environment = {name: environment[name] for name in _KNOWN if name in environment}
        self._seconds = seconds
        self._idle_seconds = idle_seconds
        self._room = asyncio.Semaphore(_MOST_CHILDREN)
        self._idle: dict[Child, _Identity] = {}
        self._busy: set[Child] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """The processes that are there now."""
        return [child.pid for child in (*self._idle, *self._busy) if child.alive]

    async def call(self, op: str, *, own: Path | None = None, **arguments: Any) -> str:
        """Let a child do it. Raises `ToolError` with a sentence when it cannot be done.

        `own` is the folder of the conversation that asks; it is `.parley` for it.
        """
        parts = () if own is None or self._private is None else own.relative_to(self._private).parts
        request = {"op": op, "seconds": self._seconds + 1.0, "own": parts, **arguments}
        async with self._room:
            identity, body = await asyncio.to_thread(self._prepare, request, own)
            answer = json.loads(await self._ask(body, identity, repeat=op != "edit"))
        if not answer["ok"]:
            raise ToolError(answer["text"])
        text: str = answer["text"]
        return text

    async def close(self) -> None:
        """End the children, whatever they do, and wait until they are gone."""
        self._closed = True
        for child in self._busy:
            child.kill()
        for _ in range(_MOST_CHILDREN):
            await self._room.acquire()  # whoever waits for a child learns that it is gone
        for _ in range(_MOST_CHILDREN):
            self._room.release()
        for child in list(self._idle):
            self._clear_away(child)
        while self._ending:
            await asyncio.wait(self._ending)

    async def _ask(self, body: bytes, identity: _Identity, *, repeat: bool) -> bytes:
        from parley.agent.tools.files.child import Ended, NotAsked

        for _ in range(2):
            try:
                return await self._ask_one(body, identity)
            except TimeoutError:
                raise ToolError(
                    f"It took longer than {self._seconds:.0f} s and was ended: ask for less, or "
                    f"use a simpler pattern."
                ) from None
            except NotAsked:
                continue
            except Ended:
                if not repeat:
                    raise ToolError(
                        "The file tools ended meanwhile: read the file to see if it was changed."
                    ) from None
        raise ToolError(_ENDED)

    async def _ask_one(self, body: bytes, identity: _Identity) -> bytes:
        if self._closed:
            raise ToolError("The file tools are closed.")
        child = self._take(identity) or await self._start()
        self._busy.add(child)
        try:
            answer = await child.ask(body, self._seconds)
            self._idle[child] = identity
        except BaseException:
            self._clear_away(child)
            raise
        finally:
            self._busy.discard(child)
        return answer

    def _take(self, identity: _Identity) -> Child | None:
        """A child that has nothing to do and sees the workspace that is there now."""
        for child, seen in list(self._idle.items()):
            if not child.alive or seen != identity:
                self._clear_away(child)
        return self._idle.popitem()[0] if self._idle else None

    def _clear_away(self, child: Child) -> None:
        child.kill()
        self._idle.pop(child, None)
        task = asyncio.create_task(child.ended())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _start(self) -> Child:
        from parley.agent.tools.files.child import Child

        try:
            command = await asyncio.to_thread(self._command)
            return await Child.start(command, self._environment)
        except OSError as error:
            reason = error.strerror or "unknown reason"
            raise ToolError(f"The file tools could not be started ({reason}).") from error
        except ToolError:
            raise
        except ParleyError as error:
            raise ToolError(str(error)) from error

    def _command(self) -> list[str]:
        sandbox = self._sandbox()
        workspace = self.workspace.resolve()
        private = None if self._private is None else self._private.resolve()
        ripgrep = _ripgrep(self._environment, workspace) if sandbox.kind == "bubblewrap" else None
        return sandbox.command(
            [
                *(os.path.realpath(sys.executable), "-I", "-S", "-X", "utf8", "-c", _BEGIN),
                *(str(_HERE), str(workspace), str(self._idle_seconds), str(ripgrep or "")),
                str(private or ""),
            ],
            workspace=workspace,
            cwd=workspace,
            read_only=(_HERE / "hand", *((ripgrep,) if ripgrep else ())),
            environment=self._environment,
            private=None if private is None else (private, private),
        )

    def _prepare(self, request: dict[str, Any], own: Path | None) -> tuple[_Identity, bytes]:
        """Which folders a child must see at this moment, and the request as it is sent."""
        if self.quota is not None and request["op"] in _WRITES:
            request["room"] = self.quota.look(own, needed=_LARGEST_WRITE).for_files()
        try:
            status = self.workspace.stat()
        except OSError:
            raise ToolError(
                f"The workspace {self.workspace} is not there: make that folder."
            ) from None
        inode = 0
        if self._private is not None:
            self._private.mkdir(mode=0o700, parents=True, exist_ok=True)
            inode = self._private.stat().st_ino
        body = json.dumps(request).encode()
        if len(body) > _LONGEST_REQUEST:
            raise ToolError("That is too long to write at once: do it in parts.")
        return (status.st_dev, status.st_ino, inode), body


_Identity = tuple[int, int, int]


def _ripgrep(environment: Mapping[str, str], workspace: Path) -> Path | None:
    """The system's, or the one installed beside us; never one that lies in the workspace."""
    path = os.pathsep.join((environment.get("PATH", os.defpath), str(Path(sys.executable).parent)))
    found = shutil.which("rg", path=path)
    program = Path(found).resolve() if found else None
    return None if program is None or workspace in program.parents else program
