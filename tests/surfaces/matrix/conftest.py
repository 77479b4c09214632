"""What the tests of Matrix stand on: one real homeserver for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.synapse import Synapse, running_synapse


@pytest.fixture(scope="session")
def synapse() -> Iterator[Synapse]:
    with running_synapse() as server:
        yield server
