"""A real gateway process with a scripted model, and client programs that are run against it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.clients.model import reply_to
from tests.servers.api_server import local_key
from tests.servers.gateway_process import REPOSITORY, GatewayProcess, write_config
from tests.servers.ports import free_port
from tests.servers.threaded_model import model_in_thread

__all__ = ["HERE", "Results", "RunClient"]

Results: TypeAlias = Mapping[str, str]
"""By the name of each check: `ok`, or the traceback of its failure."""
RunClient: TypeAlias = Callable[[str], Results]

HERE = Path(__file__).parent
_PYTHON = REPOSITORY / ".venv-clients" / "bin" / "python"
_NODE_MODULES = HERE / "node" / "node_modules"
_LONGEST = 100


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The address of a gateway's API and a key to it, as environment variables."""
    home = tmp_path_factory.mktemp("clients") / "home"
    port = free_port()
    with model_in_thread(reply_to) as model, GatewayProcess(home) as gateway:
        profile = write_config(home, model_url=model.base_url, gateway={"port": port})
        gateway.start()
        asyncio.run(gateway.until_ready())
        yield {"API": f"http://127.0.0.1:{port}/v1", "KEY": local_key(profile)}


@pytest.fixture(scope="module")
def run_client(
    api: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Results]:
    """Run a client program, once; the results of its checks."""
    done: dict[str, Results] = {}

    def run(program: str) -> Results:
        if program not in done:
            home = tmp_path_factory.mktemp(Path(program).stem)
            done[program] = _run(_command(program), {**api, **_settings(home)})
        return done[program]

    return run


def _command(program: str) -> list[str]:
    if program.endswith(".py"):
        if not _PYTHON.exists():
            pytest.skip("the client libraries are not installed (`./scripts/test` installs them)")
        return [str(_PYTHON), str(HERE / "programs" / program)]
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    if not _NODE_MODULES.exists():
        pytest.skip("the npm packages are not installed (`./scripts/test` installs them)")
    return [node, str(HERE / "node" / program)]


def _settings(home: Path) -> dict[str, str]:
    """Nothing of this machine's settings, and no reports to anybody."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LLM_USER_PATH": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANGSMITH_TRACING": "false",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "DO_NOT_TRACK": "1",
    }


def _run(command: list[str], environment: Mapping[str, str]) -> Results:
    ran = subprocess.run(
        command,
        env=environment,
        cwd=environment["HOME"],
        capture_output=True,
        text=True,
        timeout=_LONGEST,
        check=False,
    )
    told = ran.stdout.splitlines()
    if ran.returncode != 0 or not told:
        return {"": f"It ended with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}"}
    results: dict[str, str] = json.loads(told[-1])
    return results


if sys.platform == "win32":  # the paths above are those of other systems
    collect_ignore_glob = ["test_*.py"]
