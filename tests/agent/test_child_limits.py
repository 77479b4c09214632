"""A child process that parses what others made has its limits."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")

_BEGIN = "from parley.agent.child_limits import TooSlow, end_time_limit, limit_memory_and_time\n"


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + program], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_memory_has_an_end() -> None:
    said = run("limit_memory_and_time(2**28, 60)\nbytearray(2**29)")
    assert "MemoryError" in said


def test_time_has_an_end_whatever_a_parser_catches() -> None:
    said = run(
        "limit_memory_and_time(2**30, 0.2)\n"
        "try:\n"
        "    while True:\n"
        "        try:\n"
        "            sum(range(1000))\n"
        "        except Exception:\n"
        "            pass\n"
        "except TooSlow:\n"
        "    end_time_limit()\n"
        "    print('ended')\n"
    )
    assert said == "ended\n"
