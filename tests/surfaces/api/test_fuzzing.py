"""Whatever a program sends that the description allows, or does not: nothing breaks.

Schemathesis makes the requests from `/openapi.json` and sends them to a real gateway process.
"""

from __future__ import annotations

import os
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


# Wrong keys are limited for each address. A proxy that the gateway trusts gives each case its own.
_HOOKS = """
from itertools import count

import schemathesis

_numbers = count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    number = next(_numbers)
    case.headers["X-Forwarded-For"] = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
"""


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
        (tmp_path / "hooks.py").write_text(_HOOKS)
        proxied = {"trusted_proxies": ["127.0.0.1"]}
        profile = write_config(tmp_path / "home", model_url=model.base_url, gateway=proxied)
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
                env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
            assert " tested" in found.stdout or "cases" in found.stdout, found.stdout[-2000:]
            # And it still serves.
            assert await _address(gateway) == url
            await gateway.stop()
