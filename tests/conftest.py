"""What most tests stand on: a scripted model, a home that points at it, and its gateway."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from parley.cli._shared import asked_profile
from parley.gateway import app
from parley.profiles import Profile, scoped_profile
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, end_processes
from tests.servers.scripted_model import ScriptedModel
from tests.servers.stage import Stage
from tests.servers.threaded_model import model_in_thread

__all__: list[str] = []

# A run in the background begins with Ctrl-C ignored, and every program it starts inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes says more about the machine than about us.
settings.register_profile("parley", deadline=None)
settings.load_profile("parley")

# On a busy machine a profile may take longer to open than a gateway waits for it before it serves.
app._PATIENCE = 60.0

_CURRENT_TEST = "PYTEST_CURRENT_TEST"


@pytest.fixture(autouse=True)
def leaves_no_trace() -> Iterator[None]:
    """A test that changes what all tests of a process share fails itself, not one after it."""
    before = _shared_state()
    yield
    assert _shared_state() == before


def _shared_state() -> dict[str, object]:
    environment = {name: value for name, value in os.environ.items() if name != _CURRENT_TEST}
    return {
        "scope": scoped_profile(),
        "--profile": asked_profile(),
        "environment": environment,
        "directory": Path.cwd(),
        "log": (logging.root.level, list(logging.root.handlers), logging.root.manager.disable),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    }


@pytest.fixture
def stage() -> Stage:
    """What the model is to say next; without a word from here it follows directives, or echoes."""
    return Stage()


@pytest.fixture
async def model(stage: Stage) -> AsyncIterator[ScriptedModel]:
    """A model on loopback, in this event loop."""
    async with ScriptedModel(stage) as server:
        yield server


@pytest.fixture
async def house(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[House]:
    """A home whose agent is answered by `model`, and the gateways that serve it."""
    made = House(Profile("default", tmp_path / "home"), model)
    yield made
    await made.close()
    await asyncio.to_thread(end_processes, made.profile.home)


@pytest.fixture
def scenes(stage: Stage) -> Scenes:
    """What the model says, by what it is asked."""
    made = Scenes()
    stage.then(*[made] * 500)
    return made


@pytest.fixture
def far_model(stage: Stage) -> Iterator[ScriptedModel]:
    """The same model in a thread of its own, for tests that wait for real processes."""
    with model_in_thread(stage) as server:
        yield server
