from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.surfaces.api.wire.reading import Canned, canned


@pytest.fixture(scope="module")
def server() -> Iterator[Canned]:
    with canned() as server:
        yield server
