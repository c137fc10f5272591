"""What must not be shown: passwords, tokens, seeds and keys, in texts, under option names and as values."""

from __future__ import annotations

import re

__all__ = ["Secret", "is_secret", "masked_url"]

_MASK = "***"
# Greedy up to the last "@" before the next URL, as passwords hold "/" and "@" that nobody encoded. An empty authority
# (sqlite:///…) has no user info.
_USER_INFO = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*://)(?!/)(?:(?!://)\S)*@")
_QUERY_FIELD = re.compile(r"([?&])([^\s=&#]+)=([^\s&#'\"]+)")
_SECRET_NAMES = (
    "password", "passwd", "passphrase", "pwd", "secret", "token", "seed", "credential", "creds", "jwt",
    "privatekey", "apikey", "accesskey", "tlskey", "sslkey", "jaasconfig", "authorization", "signature",
)  # fmt: skip
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]")


def masked_url(text: str) -> str:
    """*text* with the user info of every URL in it replaced, and the values of secret fields of their queries.

    It masks too much rather than too little: an ``@`` in a path counts as the end of user info.

    >>> masked_url("no server of nats://ann:pa/ss@a:4222,nats://t0ken@b answers")
    'no server of nats://***@a:4222,nats://***@b answers'
    >>> masked_url("mongodb://db/turnout?tls=true&tlsCertificateKeyFilePassword=x")
    'mongodb://db/turnout?tls=true&tlsCertificateKeyFilePassword=***'
    """
    return _QUERY_FIELD.sub(_masked_field, _USER_INFO.sub(rf"\1{_MASK}@", text))


def _masked_field(field: re.Match[str]) -> str:
    return f"{field[1]}{field[2]}={_MASK}" if is_secret(field[2]) else field[0]


def is_secret(name: str) -> bool:
    """Whether an option of this *name* holds something that must not be shown; case and punctuation do not count.

    >>> [is_secret(name) for name in ("nkeySeed", "kafka.ssl.key-password", "TURNOUT_NATS_TOKEN", "servers", "key")]
    [True, True, True, False, False]
    """
    bare = _NOT_IN_NAMES.sub("", name.lower())
    return bare in ("pass", "auth") or any(word in bare for word in _SECRET_NAMES)


class Secret:
    """A text that shows itself to nobody but a caller of `reveal`.

    No dataclass, as `dataclasses.asdict` would take the text out. Pickling carries it: what is sent to another
    process is not hidden from it.

    >>> f"{Secret('open sesame')} {Secret('open sesame')!r}"
    '*** ***'
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the place that sends it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __repr__(self) -> str:
        return _MASK
