"""TLS of the server: certificate files, which are read again when they change."""

from __future__ import annotations

import logging
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from parley.config.errors import shown
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.config.settings import TlsSettings

__all__ = ["CertificateFiles", "find_certificate"]

_log = logging.getLogger("parley.api")

_LOOKED_EVERY: Final = 1.0

_Stamp = tuple[tuple[int, int, int], ...]


def find_certificate(settings: TlsSettings, home: Path) -> CertificateFiles | None:
    """The files that the settings name, from `home` on; None where TLS is not set up."""
    if not settings.certificate:
        if settings.key:
            raise ParleyError(
                "gateway.tls.key is set without a certificate: set gateway.tls.certificate too."
            )
        return None
    certificate = home / Path(settings.certificate).expanduser()
    key = home / Path(settings.key).expanduser() if settings.key else None
    return CertificateFiles(certificate, key)


class CertificateFiles:
    """The TLS context of the newest files that can be used. Raises where there are none yet.

    New connections use what was renewed; open ones go on. Files that cannot be used, such as a
    certificate whose key is still to be written, leave the context as it is, and are tried again.
    """

    def __init__(self, certificate: Path, key: Path | None) -> None:
        self._certificate = certificate
        self._key = key
        self._stamp = self._look()
        self._context = self._load()
        self._looked_at = time.monotonic()
        self.fault: str | None = None
        """Why the files that are there now are not used."""

    def context(self) -> ssl.SSLContext:
        now = time.monotonic()
        if now - self._looked_at >= _LOOKED_EVERY:
            self._looked_at = now
            self._renew()
        return self._context

    def _renew(self) -> None:
        stamp = self._look()
        if stamp == self._stamp and self.fault is None:
            return
        try:
            self._context = self._load()
        except ParleyError as error:
            if str(error) != self.fault:
                _log.warning("certificate_not_renewed", extra={"why": str(error)})
            self.fault = str(error)
            return
        self._stamp, self.fault = stamp, None
        _log.info("certificate_renewed")

    def _files(self) -> tuple[Path, ...]:
        return (self._certificate,) if self._key is None else (self._certificate, self._key)

    def _look(self) -> _Stamp:
        try:
            found = [file.stat() for file in self._files()]
        except OSError:
            return ()
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)

    def _load(self) -> ssl.SSLContext:
        for file in self._files():
            try:
                file.read_bytes()
            except OSError as error:
                reason = (error.strerror or type(error).__name__).lower()
                raise ParleyError(f"TLS: {shown(file)} cannot be read: {reason}.") from error
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.set_alpn_protocols(["http/1.1"])
        try:
            made.load_cert_chain(self._certificate, self._key, password=_refuse_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ParleyError(self._explain(error)) from error
        return made

    def _explain(self, error: Exception) -> str:
        certificate, key = shown(self._certificate), shown(self._key or self._certificate)
        if isinstance(error, _Encrypted):
            return f"TLS: the private key in {key} is encrypted; store it without a password."
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            return f"TLS: the private key in {key} does not belong to {certificate}."
        return f"TLS: {certificate} and {key} are no PEM certificate with its private key."


class _Encrypted(ValueError):
    """The private key wants a password."""


def _refuse_password() -> str:
    raise _Encrypted
