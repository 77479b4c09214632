"""Whatever a program sends that the description allows, or does not: nothing breaks.

Schemathesis makes the requests from `/openapi.json` and sends them to a real gateway process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.servers.api_server import local_key
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config

_CHECKS = (
    "not_a_server_error",
    "response_schema_conformance",
    "content_type_conformance",
    "unsupported_method",
    "ignored_auth",
)


async def _address(gateway: GatewayProcess) -> str:
    told: Any = await gateway.status()
    assert told["ready"]
    [api] = [place for place in told["surfaces"] if place["platform"] == "api"]
    return f"http://{urlsplit(api['where']).netloc}"


@pytest.mark.timeout(240)
async def test_no_request_that_can_be_made_up_is_answered_with_a_fault_of_ours(
    tmp_path: Path,
) -> None:
    with ModelProcess() as model:
        profile = write_config(tmp_path / "home", model_url=model.base_url)
        with GatewayProcess(profile.home) as gateway:
            gateway.start()
            await gateway.until_ready()
            url = await _address(gateway)
            found = subprocess.run(
                [
                    *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
                    *("--header", f"Authorization: Bearer {local_key(profile)}"),
                    *("--checks", ",".join(_CHECKS)),
                    *("--phases", "examples,coverage,fuzzing"),
                    *("--max-examples", "6", "--max-time", "40", "--request-timeout", "20"),
                    *("--generation-deterministic", "--no-color"),
                ],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
            assert " tested" in found.stdout or "cases" in found.stdout, found.stdout[-2000:]
            # And it still serves.
            assert await _address(gateway) == url
            await gateway.stop()
