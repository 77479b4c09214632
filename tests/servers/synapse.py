"""A real Synapse on loopback, for tests: one for each worker, with its files in memory.

`python -m tests.servers.synapse` runs one by hand and prints its address.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.ports import free_port

__all__ = ["Account", "Synapse", "running_synapse"]

_PATIENCE = 60.0
_NO_LIMIT = {"per_second": 100_000, "burst_count": 100_000}


@dataclass(frozen=True, slots=True)
class Account:
    """Someone who is registered there."""

    user_id: str
    password: str
    token: str
    device_id: str


@dataclass(frozen=True, slots=True)
class Synapse:
    """A homeserver called `localhost`."""

    url: str
    shared_secret: str
    process: subprocess.Popen[bytes]
    directory: Path

    def register(self, name: str | None = None, *, display_name: str | None = None) -> Account:
        """A new user; without a name, one nobody else has."""
        name = name or f"u{secrets.token_hex(5)}"
        password = secrets.token_urlsafe(12)
        nonce = self.call("GET", "/_synapse/admin/v1/register")["nonce"]
        mac = hmac.new(self.shared_secret.encode(), digestmod=hashlib.sha1)
        mac.update("\0".join((nonce, name, password, "notadmin")).encode())
        made = self.call(
            "POST",
            "/_synapse/admin/v1/register",
            {
                "nonce": nonce,
                "username": name,
                "password": password,
                "admin": False,
                "mac": mac.hexdigest(),
                "displayname": display_name or name,
            },
        )
        return Account(made["user_id"], password, made["access_token"], made["device_id"])

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
    ) -> dict[str, Any]:
        """One request of its API; raises with the server's words when it is refused."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Content-Type": "application/json",
                **({"Authorization": f"Bearer {token}"} if token else {}),
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                told: dict[str, Any] = json.load(answer)
                return told
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from error

    def pause(self) -> None:
        """It answers nobody until `resume`."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)


@contextmanager
def running_synapse(*, port: int = 0, extra: Mapping[str, Any] | None = None) -> Iterator[Synapse]:
    """Start one and stop it. `extra` is put above the configuration, such as real rate limits."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix="parley-synapse-", dir=place))
    port = port or free_port()
    secret = secrets.token_hex(16)
    config = directory / "homeserver.yaml"
    settings = {**_configuration(directory, port, secret), **(extra or {})}
    config.write_text(json.dumps(settings))  # JSON is YAML
    with (directory / "out.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "synapse.app.homeserver", "-c", str(config)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=directory,
            env={**os.environ, "SYNAPSE_CACHE_FACTOR": "1.0"},
        )
    found = Synapse(f"http://127.0.0.1:{port}", secret, process, directory)
    try:
        _wait_until_ready(found)
        yield found
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _wait_until_ready(server: Synapse) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        if server.process.poll() is not None:
            break
        try:
            server.call("GET", "/_matrix/client/versions")
        except (OSError, RuntimeError):
            time.sleep(0.02)
        else:
            return
    told = "".join(path.read_text(errors="replace") for path in server.directory.glob("*.log"))
    raise RuntimeError(f"Synapse did not start:\n{told[-4000:]}")


def _configuration(directory: Path, port: int, secret: str) -> dict[str, Any]:
    seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    log_config = directory / "log.json"
    log_config.write_text(
        json.dumps(
            {
                "version": 1,
                "handlers": {
                    "file": {
                        "class": "logging.FileHandler",
                        "filename": str(directory / "synapse.log"),
                    }
                },
                "root": {"level": "WARNING", "handlers": ["file"]},
                "disable_existing_loggers": False,
            }
        )
    )
    return {
        "server_name": "localhost",
        "report_stats": False,
        "public_baseurl": f"http://127.0.0.1:{port}/",
        "listeners": [
            {
                "port": port,
                "bind_addresses": ["127.0.0.1"],
                "type": "http",
                "resources": [{"names": ["client", "media"]}],
            }
        ],
        "database": {"name": "sqlite3", "args": {"database": str(directory / "homeserver.db")}},
        "signing_key": f"ed25519 a_test {seed}",
        "registration_shared_secret": secret,
        "macaroon_secret_key": secrets.token_hex(16),
        "form_secret": secrets.token_hex(16),
        "media_store_path": str(directory / "media"),
        "pid_file": str(directory / "pid"),
        "log_config": str(log_config),
        "trusted_key_servers": [],
        "federation_domain_whitelist": [],
        "presence": {"enabled": False},
        "url_preview_enabled": False,
        "bcrypt_rounds": 4,
        "max_upload_size": "100M",
        # Or whoever syncs anew within two minutes is told what was so before.
        "caches": {"sync_response_cache_duration": "0s"},
        "rc_message": _NO_LIMIT,
        "rc_registration": _NO_LIMIT,
        "rc_admin_redaction": _NO_LIMIT,
        "rc_joins_per_room": _NO_LIMIT,
        "rc_room_creation": _NO_LIMIT,
        "rc_media_create": _NO_LIMIT,
        "rc_delayed_event_mgmt": _NO_LIMIT,
        "rc_login": {
            "address": _NO_LIMIT,
            "account": _NO_LIMIT,
            "failed_attempts": _NO_LIMIT,
        },
        "rc_joins": {"local": _NO_LIMIT, "remote": _NO_LIMIT},
        "rc_invites": {"per_room": _NO_LIMIT, "per_user": _NO_LIMIT, "per_issuer": _NO_LIMIT},
        "rc_presence": {"per_user": _NO_LIMIT},
    }


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end with the server stopped
    with running_synapse() as server:
        print(server.url, flush=True)
        with_accounts = [server.register(name) for name in sys.argv[1:]]
        for account in with_accounts:
            print(account.user_id, account.password, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
