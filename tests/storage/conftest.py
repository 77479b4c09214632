"""The conformance suite is not a test file by name, so its asserts are asked for here."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.storage.conformance")
