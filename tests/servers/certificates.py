"""Certificates for tests, made by openssl."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

__all__ = ["make_certificate", "trusting"]


def make_certificate(certificate: Path, key: Path, name: str = "localhost", *more: str) -> None:
    """A certificate of its own for `name` and 127.0.0.1; files that are there are replaced."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate)]
    command += ["-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1"]
    try:
        subprocess.run([*command, *(more or ["-nodes"])], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl makes the certificate for this test")


def trusting(certificate: Path) -> ssl.SSLContext:
    """For a client that trusts this certificate and no other."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(certificate)
    return made
