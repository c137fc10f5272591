"""Credentials of a connection: user and password, a token, an nkey, or a credentials file.

A credentials file and an nkey sign the server's nonce; that takes the package ``nkeys`` (the extra ``nkeys``).
"""

from __future__ import annotations

import base64
import logging
import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from turnout.errors import ConfigError, MissingExtraError, Mistake, StreamError

_log = logging.getLogger(__name__)

_SECTION = re.compile(r"-----BEGIN ([A-Z ]+)-----\s*+(\S++)\s++-++END")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of one authentication method, or of none. Secrets are not part of the ``repr``.

    >>> Credentials(user="reader", password="secret")
    Credentials(user='reader')
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    seed: str | None = field(default=None, repr=False)
    jwt: str | None = field(default=None, repr=False)

    @classmethod
    def from_file(cls, text: str) -> Credentials:
        """Parse a ``.creds`` file: the user's JWT and the seed that signs for it.

        Raises:
            ConfigError: when one of the two is not there; the text is not repeated.
        """
        sections = dict(_SECTION.findall(text))
        jwt, seed = sections.get("NATS USER JWT"), sections.get("USER NKEY SEED")
        if not jwt or not seed:
            missing = "NATS USER JWT" if not jwt else "USER NKEY SEED"
            raise ConfigError([Mistake("credentials", f"the file has no section {missing!r}")])
        return cls(seed=seed, jwt=jwt)

    @property
    def signs(self) -> bool:
        """True if the credentials answer the server's nonce with a signature."""
        return self.seed is not None

    def connect_fields(self, nonce: str | None) -> dict[str, str]:
        """Return the fields that these credentials add to the CONNECT message.

        Raises:
            MissingExtraError: when a signature is needed and ``nkeys`` is not installed.
            ConfigError: when the seed is none, or the server offered nothing to sign.
        """
        if self.seed is not None:
            return self._signed(self.seed, nonce)
        fields = {"user": self.user, "pass": self.password, "auth_token": self.token}
        return {name: value for name, value in fields.items() if value is not None}

    def _signed(self, seed: str, nonce: str | None) -> dict[str, str]:
        try:
            import nkeys
        except ImportError as missing:
            raise MissingExtraError("nkeys", "nkeys") from missing
        if nonce is None:
            raise ConfigError([Mistake("credentials", "the server offered no nonce: it does not use nkeys or JWTs")])
        try:
            pair = nkeys.from_seed(seed.strip().encode())
            signature = base64.urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=").decode()
            public = pair.public_key.decode()
        except Exception:  # noqa: BLE001 - nkeys raises several kinds; none may carry the seed into a log
            raise ConfigError([Mistake("credentials", "the seed is not an nkey seed")]) from None
        return {"sig": signature, "jwt": self.jwt} if self.jwt else {"sig": signature, "nkey": public}


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings of a connection: certificates to check and to present, as PEM texts.

    The files that they come from are read again for each connection: a renewed certificate is that of the next one.

    Attributes:
        ca: the authorities to trust, and no others; the system's where there are none.
        certificate: our own, with its *key* in the same text or apart.
        hostname: the name that the server's certificate must have, if not the host's.
        insecure: take any certificate.
        first: begin with the handshake, before the server's greeting.
        files: paths of *ca*, *certificate* and *key*; None for texts without a file. Texts are used where a process
            cannot read them.

    >>> Tls(ca="-----BEGIN CERTIFICATE-----", hostname="nats.example")
    Tls(hostname='nats.example', insecure=False, first=False)
    """

    ca: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    hostname: str | None = None
    insecure: bool = False
    first: bool = False
    files: tuple[str | None, str | None, str | None] = field(default=(None, None, None), repr=False)

    def context(self) -> ssl.SSLContext:
        """The context to wrap a socket with.

        Files that do not fit, as while they are replaced, are not used: the texts that were read first are.

        Raises:
            ConfigError: when a certificate or a key cannot be used.
        """
        texts = (self.ca, self.certificate, self.key)
        present = tuple(map(_present, self.files, texts))
        if present != texts:
            try:
                return _context_of(replace(self, ca=present[0], certificate=present[1], key=present[2]))
            except ConfigError as wrong:
                _log.warning("%s: the certificates that were read at the start are used", wrong.mistakes[0])
        return _context_of(self)


def _context_of(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=tls.ca)
        if tls.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.certificate is not None:
            # The ssl module reads a client certificate from a file only; this one is deleted immediately
            # afterwards.
            with tempfile.TemporaryDirectory(prefix="turnout-tls-") as folder:
                pem = Path(folder) / "client.pem"
                pem.touch(mode=0o600)
                pem.write_text(f"{tls.certificate}\n{tls.key or ''}\n", encoding="utf-8")
                context.load_cert_chain(pem)
    except ssl.SSLError as failure:
        raise ConfigError([Mistake("tls", f"a certificate cannot be used: {failure.reason}")]) from None
    return context


def _present(file: str | None, text: str | None) -> str | None:
    """Return the text that a file has now, or *text* if it cannot be read."""
    try:
        return text if file is None else Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return text


def begins_tls(greeting: Mapping[str, object], *, requested: bool, server: object) -> bool:
    """Return True if a TLS handshake follows the greeting of *server* (its INFO); call before sending anything.

    It follows where the server requires it, and where it was *requested* and the server offers it (nats.go does the
    same). Not promised: that a server's requirement of TLS is noticed where TLS is not requested and an attacker on the
    path changes the greeting. Only ``tls://`` or an option of TLS refuses that.

    Raises:
        StreamError: TLS is required and not offered: the credentials would be sent in the clear.
    """
    required = bool(greeting.get("tls_required"))
    if requested and not (required or greeting.get("tls_available")):
        raise StreamError(f"{server} offers no TLS, and TLS is required: nothing was sent to it")
    return requested or required
