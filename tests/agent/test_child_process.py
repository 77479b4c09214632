"""Starting a child takes nothing from the event loop, and nothing is left of one nobody wants."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from parley.agent.child_process import start_child
from tests.waiting import until

_WHERE_STARTED = """
import sys, threading
import uvloop
from parley.agent.child_process import start_child

where = []
sys.addaudithook(
    lambda name, _: where.append(threading.current_thread()) if name == "subprocess.Popen" else None
)

async def main():
    for _ in range(2):
        child = await start_child(["/bin/true"], environment={})
        assert await child.wait() == 0
        child.close()

uvloop.run(main())
assert len(where) == 2 and len({*where}) == 1, where
assert where[0] is not threading.main_thread(), where
assert where[0].is_alive(), where  # a sandbox dies with the thread that started it
"""


def test_a_child_is_started_beside_the_event_loop_by_a_thread_that_stays() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WHERE_STARTED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, ["", *sys.path]))},
    )
    assert done.returncode == 0, done.stderr


async def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await start_child(["/no/such/program"], environment={})


async def test_no_child_is_left_of_a_start_that_was_cancelled(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("started")
    script = f"echo $$ > {folder}/$$.new && mv {folder}/$$.new {folder}/$$; exec sleep 600"
    for turns in (1, 2, 3, 5, 8, 13, 21):
        starting = asyncio.create_task(start_child(["/bin/sh", "-c", script], environment={}))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        try:
            child = await starting
        except asyncio.CancelledError:
            continue
        child.kill()
        await child.wait()
        child.close()

    def living() -> list[str]:
        pids = (file.name for file in folder.iterdir() if file.suffix != ".new")
        return [pid for pid in pids if _is_there(int(pid))]

    last = await start_child(["/bin/true"], environment={})  # all before it were started by now
    await last.wait()
    last.close()
    await until(lambda: not living())


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
