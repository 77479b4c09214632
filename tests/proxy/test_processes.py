"""Two gateways as people run them: processes of their own, keys, variables, and kills."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from parley.gateway.home import socket_path
from tests.cli.command import Parley
from tests.servers.gateway_process import write_config
from tests.servers.ports import free_port
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.terminal import Line
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Far:
    parley: Parley
    url: str
    key: str


@pytest.fixture
def far(tmp_path: Path, far_model: ScriptedModel) -> Far:
    """An agent with a port of its own, and a key to it; not running yet."""
    port = free_port()
    home = tmp_path / "far"
    write_config(home, model_url=far_model.base_url)
    parley = Parley(home, {"PARLEY_GATEWAY_PORT": str(port)})
    made = parley.run("keys", "create", "near", "--scope", "chat", "--json")
    return Far(parley, f"http://127.0.0.1:{port}", json.loads(made.stdout)["token"])


@pytest.fixture
def near(tmp_path: Path, far: Far) -> Parley:
    """A gateway that is told by its environment who answers."""
    home = tmp_path / "near"
    write_config(home, model_url="http://127.0.0.1:9/v1")
    return Parley(home, {"GATEWAY_PROXY_URL": far.url, "GATEWAY_PROXY_KEY": far.key})


class Listener:
    """A port that counts who comes, and says nothing."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.came = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.came += 1
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(60)


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def asked(model: ScriptedModel) -> list[str]:
    messages = model.requests[-1].json["messages"]
    return [str(m["content"]) for m in messages if m["role"] != "system"]


async def test_the_far_gateway_is_killed_in_the_middle_and_comes_back(
    far: Far, near: Parley, far_model: ScriptedModel, stage: Stage
) -> None:
    with near.gateway():
        with far.parley.gateway() as process:
            assert near.run("chat", "--continue", "-m", "one").stdout == "echo: one\n"
            told = near.run("gateway", "status").stdout
            assert f"  answers   the agent at {far.url}\n" in told
            assert "fault" not in told
            stage.then(Reply(text="Once upon a time there was", chunks=2, chunk_delay=30))
            async with Line(socket_path(near.profile)) as line:
                await line.hello()
                await line.say("tell", "e1")
                await until(line.streamed)
                process.send_signal(signal.SIGKILL)
                await until(lambda: line.answer_to("e1"))
                said = line.answer_to("e1")
            assert said is not None
            assert said.kind == "reply"
            assert said.text.startswith("Once upon a t\n\n(The connection to the remote agent was ")
        away = near.run("chat", "--continue", "-m", "hello?")
        assert away.returncode == 1
        assert f"Proxy connection error: nothing answers at {far.url};" in away.stderr
        with far.parley.gateway():
            assert near.run("chat", "--continue", "-m", "on").stdout == "echo: hello? | on\n"
            words = asked(far_model)
            assert words[:3] == ["one", "echo: one", "tell"]
            assert words[3].startswith("Once upon a t")
            assert words[4:] == ["hello?", "on"]
    for written in near.home.rglob("*"):
        assert not written.is_file() or far.key.encode() not in written.read_bytes(), written


def test_what_is_wrong_with_the_far_end_is_a_sentence_of_the_status(far: Far, near: Parley) -> None:
    with near.gateway():
        told = near.run("gateway", "status").stdout
        assert f"  answers   the agent at {far.url}\n" in told
        assert f"  fault     Proxy connection error: nothing answers at {far.url};" in told


def test_a_wrong_key_is_a_sentence_of_the_status(far: Far, near: Parley) -> None:
    wrong = replace(near, more={**near.more, "GATEWAY_PROXY_KEY": far.key[:-4] + "AAAA"})
    with far.parley.gateway(), wrong.gateway():
        told = wrong.run("gateway", "status").stdout
        assert "  fault     Proxy error (401): " in told
        assert far.key[:-4] not in told
        assert "Proxy error (401): " in wrong.run("chat", "-m", "hi").stderr


def test_the_environment_wins_over_the_settings(far: Far, near: Parley, listener: Listener) -> None:
    write_config(near.home, model_url="http://127.0.0.1:9/v1", gateway={"proxy_url": listener.url})
    with far.parley.gateway(), near.gateway():
        assert near.run("chat", "-m", "hi").stdout == "echo: hi\n"
    assert listener.came == 0
    silent = Parley(near.home)
    with silent.gateway():
        assert "Proxy connection error" in silent.run("chat", "-m", "hi").stderr
    assert listener.came > 0


def test_without_a_proxy_nothing_is_sent_to_any(
    tmp_path: Path, far_model: ScriptedModel, listener: Listener
) -> None:
    home = tmp_path / "alone"
    write_config(home, model_url=far_model.base_url)
    proxied = Parley(home, {"GATEWAY_PROXY_URL": listener.url})
    with proxied.gateway():
        assert proxied.run("chat", "-m", "hi").returncode == 1
    before = listener.came
    assert before > 0
    assert far_model.total == 0
    alone = Parley(home, {"GATEWAY_PROXY_URL": "  ", "GATEWAY_PROXY_KEY": "sk-some-key"})
    with alone.gateway():
        assert alone.run("chat", "-m", "hello").stdout.startswith("echo: ")
        assert "scripted" in alone.run("gateway", "status").stdout
    assert listener.came == before
    assert far_model.total == 1
