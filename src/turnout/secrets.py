"""Masking of secrets: passwords, tokens, seeds and keys, in texts, under option names and as values."""

from __future__ import annotations

import re
from enum import Enum, auto

_MASK = "***"
_SCHEME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-")
# User info behind "://" goes up to the last "@", as passwords may contain unencoded "/" and "@". An empty authority
# (sqlite:///…) has none.
_USER_INFO = re.compile(r"(?!/)\S*@")
_WORD = re.compile(r"\S+")
_COLON = re.compile(r"[\w.+~%$!*-]:")
_OPENING = "\"'`([{<=,;"
_BETWEEN_VALUES = ('",', '":', "',", "':")
_QUERY_FIELD = re.compile(r"([?&])([^\s=&#?]+)=([^\s&#'\"]+)")
_SECRET_NAMES = (
    "password", "passwd", "passphrase", "pwd", "secret", "token", "seed", "credential", "creds", "jwt",
    "privatekey", "apikey", "accesskey", "tlskey", "sslkey", "jaasconfig", "authorization", "signature",
    "userinfo",
)  # fmt: skip
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]")


def masked_url(text: str) -> str:
    """*text* with the user info of every URL in it replaced, and the values of secret fields of their queries.

    A login without a scheme counts as well: a name, a colon, a password and an ``@``. It masks too much rather than too
    little: an ``@`` in a path counts as the end of user info. The time grows as the length does.

    >>> masked_url("no server of nats://ann:pa/ss@a:4222,nats://t0ken@b answers")
    'no server of nats://***@a:4222,nats://***@b answers'
    >>> masked_url("found 'ann:pass@a:4222', expected one server")
    "found '***@a:4222', expected one server"
    >>> masked_url("mongodb://db/turnout?tls=true&tlsCertificateKeyFilePassword=x")
    'mongodb://db/turnout?tls=true&tlsCertificateKeyFilePassword=***'
    """
    if "@" in text:
        head, *parts = text.split("://")
        masked = [_WORD.sub(_without_login, head)]
        for before, part in zip((head, *parts), parts, strict=False):
            user_info = _USER_INFO.match(part) if _ends_with_scheme(before) else None
            end = user_info.end() if user_info else 0
            masked.append((f"{_MASK}@" if user_info else "") + _WORD.sub(_without_login, part[end:]))
        text = "://".join(masked)
    return _QUERY_FIELD.sub(_masked_field, text)


def _ends_with_scheme(text: str) -> bool:
    """Return True if the text ends with a URL's scheme: letters, digits and signs with a letter among them."""
    for character in reversed(text):
        if character not in _SCHEME:
            return False
        if character.isalpha():
            return True
    return False


def _without_login(found: re.Match[str]) -> str:
    """Return a word with a mask in place of ``name:password`` before its last ``@``."""
    login, at, host = found[0].rpartition("@")
    colon = _COLON.search(login, max(login.rfind(between) for between in _BETWEEN_VALUES) + 1)
    if not at or colon is None:
        return found[0]
    start = max(login.rfind(opening, 0, colon.end()) for opening in _OPENING) + 1
    return f"{login[:start]}{_MASK}@{host}"


def _masked_field(field: re.Match[str]) -> str:
    return f"{field[1]}{field[2]}={_MASK}" if is_secret(field[2]) else field[0]


def is_secret(name: str) -> bool:
    """Return True if an option of this *name* holds a secret; case and punctuation do not count.

    >>> [is_secret(name) for name in ("nkeySeed", "kafka.ssl.key-password", "TURNOUT_NATS_TOKEN", "servers", "key")]
    [True, True, True, False, False]
    """
    bare = _NOT_IN_NAMES.sub("", name.lower())
    return bare in ("pass", "auth") or any(word in bare for word in _SECRET_NAMES)


class Secrecy(Enum):
    """Mark of a field of a model: ``password: Annotated[str | None, Secrecy.SECRET] = None``.

    Only options of other programs, which are maps of texts, are known by their names alone: `is_secret`.
    """

    SECRET = auto()
    PUBLIC = auto()
    """The name is like that of a secret, and the value is none."""


class Secret:
    """Text that only `reveal` shows.

    No dataclass, as `dataclasses.asdict` would take the text out. Pickling carries it: what is sent to another
    process is not hidden from it.

    >>> f"{Secret('open sesame')} {Secret('open sesame')!r}"
    '*** ***'
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, for the code that sends it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __repr__(self) -> str:
        return _MASK
