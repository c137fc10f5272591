"""Credentials of a connection: user and password, a token, an nkey, or a credentials file.

A credentials file and an nkey sign the server's nonce; that takes the package ``nkeys`` (the extra ``nkeys``).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field

from turnout.errors import ConfigError, MissingExtraError, Mistake

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
