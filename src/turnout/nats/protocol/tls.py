"""TLS: settings for the handshake, and the rule that decides on it."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from turnout.errors import ConfigError, Mistake, StreamError


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings of a connection: certificates to check and to present; the value carries PEM texts, not their paths.

    Attributes:
        ca: the authorities to trust, and no others; the system's where there are none.
        certificate: our own, with its *key* in the same text or apart.
        hostname: the name that the server's certificate must have, if not the host's.
        insecure: take any certificate.
        first: begin with the handshake, before the server's greeting.

    >>> Tls(ca="-----BEGIN CERTIFICATE-----", hostname="nats.example")
    Tls(hostname='nats.example', insecure=False, first=False)
    """

    ca: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    hostname: str | None = None
    insecure: bool = False
    first: bool = False

    def context(self) -> ssl.SSLContext:
        """The context to wrap a socket with.

        Raises:
            ConfigError: when a certificate or a key cannot be used.
        """
        try:
            context = ssl.create_default_context(cadata=self.ca)
            if self.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate is not None:
                # The ssl module reads a client certificate from a file only; this one is gone a moment later.
                with tempfile.TemporaryDirectory(prefix="turnout-tls-") as folder:
                    pem = Path(folder) / "client.pem"
                    pem.touch(mode=0o600)
                    pem.write_text(f"{self.certificate}\n{self.key or ''}\n", encoding="utf-8")
                    context.load_cert_chain(pem)
        except ssl.SSLError as failure:
            raise ConfigError([Mistake("tls", f"a certificate cannot be used: {failure.reason}")]) from None
        return context


def begins_tls(greeting: Mapping[str, object], *, requested: bool, server: object) -> bool:
    """Return True if a TLS handshake follows the greeting of *server* (its INFO); call before sending anything.

    It follows where the server requires it, and where it was *requested* and the server offers it (nats.go does the
    same). Not promised: that a server's requirement of TLS is noticed where TLS is not requested and an attacker on the
    path changes the greeting. Only ``tls://`` or an option of TLS refuses that.

    Raises:
        StreamError: when it is asked for and not offered: to go on would send the credentials in the clear.
    """
    required = bool(greeting.get("tls_required"))
    if requested and not (required or greeting.get("tls_available")):
        raise StreamError(f"{server} offers no TLS, and TLS is asked for: nothing was sent to it")
    return requested or required
