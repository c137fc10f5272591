"""Encryption of the signing secrets and credentials of subscriptions, at their way into a store.

A sealed secret can be opened for the subscription that it was sealed for, and for no other: a reader of a subscription
cannot have its secret used for another one. Encrypted by Fernet, of the package ``cryptography``.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar

from turnout.base.files import read_file
from turnout.errors import ConfigError, MissingExtraError, Mistake, SubscriptionInvalidError, TurnoutError
from turnout.subscriptions.credentials import HiddenSecret, PlainSecret, SealedSecret, SigningSecret
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.destinations import checked_version
from turnout.subscriptions.model import Subscription, new_id

if TYPE_CHECKING:
    from cryptography.fernet import Fernet, MultiFernet

    from turnout.subscriptions.lines import PlainLine

SECRET_KEY: Final = "TURNOUT_SECRET_KEY"  # noqa: S105 - the name of a variable
"""Variable with the keys: separated by commas, the first one encrypts and all decrypt."""

SECRET_KEY_FILE: Final = f"{SECRET_KEY}_FILE"
"""Variable with the path of a file that has the keys."""

_MAX_KEYS_BYTES: Final = 65_536

_Stored = TypeVar("_Stored", Subscription, "Subscription | PlainLine")


class SealError(TurnoutError):
    """Raised when no key opens a sealed secret, or when it was sealed for another subscription."""


class SecretKeys:
    """Keys that seal secrets and open them.

    Args:
        keys: Fernet keys, 32 bytes in URL-safe base64; the first one encrypts.

    Raises:
        ConfigError: one is no key; without the key.
        MissingExtraError: ``cryptography`` is not installed.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        module = _fernet()
        self._invalid_token: type[Exception] = module.InvalidToken
        fernets = [_key(module, number, key) for number, key in enumerate(keys, 1)]
        self._first: Fernet = fernets[0]
        self._all: MultiFernet = module.MultiFernet(fernets)

    def seal(self, id_: str, secret: PlainSecret) -> SealedSecret:
        """Encrypt a secret of the subscription with this id in the store."""
        return self._sealed(id_, secrets.token_hex(4), secret.text)

    def open(self, id_: str, sealed: SealedSecret) -> str:
        """Decrypt a secret of the subscription with this id.

        Raises:
            SealError: it was encrypted with another key, or for another subscription.
        """
        try:
            content = self._all.decrypt(sealed.token).decode()
        except self._invalid_token:
            raise SealError(f"none of the keys in {SECRET_KEY} decrypts it") from None
        owner, _, secret = content.rpartition("\n")
        if owner != id_:
            raise SealError("it was encrypted for another subscription")
        return str(secret)

    def resealed(self, id_: str, sealed: SealedSecret) -> SealedSecret:
        """Return a secret encrypted with the first key; itself if it is already.

        Raises:
            SealError: see `open`.
        """
        secret = self.open(id_, sealed)
        try:
            self._first.decrypt(sealed.token)
        except self._invalid_token:
            return self._sealed(id_, sealed.name, secret)
        return sealed

    def _sealed(self, id_: str, name: str, secret: str) -> SealedSecret:
        return SealedSecret(name, self._first.encrypt(f"{id_}\n{secret}".encode()).decode())


def new_key() -> str:
    """Return a new key.

    Raises:
        MissingExtraError: ``cryptography`` is not installed.
    """
    return str(_fernet().Fernet.generate_key().decode())


def secret_keys(environment: Mapping[str, str] = os.environ) -> SecretKeys | None:
    """Return the keys of the environment, or of the file that it names; None without any.

    Raises:
        ConfigError: one is no key, both variables are set, or the file cannot be read.
        MissingExtraError: there are keys, and ``cryptography`` is not installed.
    """
    written, file = environment.get(SECRET_KEY, "").strip(), environment.get(SECRET_KEY_FILE, "").strip()
    if written and file:
        raise ConfigError([Mistake(SECRET_KEY, f"{SECRET_KEY_FILE} is set too: expected one of both")])
    if file:
        written = _content(Path(file)).strip()
        if not written:
            raise ConfigError([Mistake(SECRET_KEY_FILE, f"the file {file!r} is empty")])
    return _keys_of(written) if written else None


def needed_keys() -> SecretKeys:
    """Return the keys of the environment.

    Raises:
        ConfigError: see `secret_keys`; or there are none.
    """
    keys = secret_keys()
    if keys is None:
        raise ConfigError([Mistake(SECRET_KEY, "it is not set; `turnout subscriptions secret-key` makes a key")])
    return keys


def opened_secrets(id: str, sealed: Iterable[SigningSecret]) -> list[str]:
    """Return the secrets of a subscription, to sign its requests, or its credentials.

    Raises:
        SealError: there is no key, none opens a secret, or a view of one tenant hides them.
    """
    keys = _present_keys()
    return [keys.open(id, secret) for secret in _all_sealed(sealed)]


def _all_sealed(stored: Iterable[SigningSecret]) -> Iterator[SealedSecret]:
    for secret in stored:
        if not isinstance(secret, SealedSecret):
            raise SealError("the store hides it: this needs access to the whole store, not to one tenant")
        yield secret


def _present_keys() -> SecretKeys:
    """Return the keys of the environment; raise a SealError of one line if there are none."""
    try:
        return needed_keys()
    except ConfigError as problem:
        raise SealError("; ".join(map(str, problem.mistakes))) from problem
    except MissingExtraError as problem:
        raise SealError(str(problem)) from problem


@lru_cache(maxsize=4)
def _keys_of(written: str) -> SecretKeys:
    return SecretKeys(key.strip() for key in written.split(","))


def _content(file: Path) -> str:
    try:
        return read_file(file, max_bytes=_MAX_KEYS_BYTES).decode()
    except OSError as failure:
        problem = f"the file {str(file)!r} cannot be read: {failure.strerror}"
    except UnicodeDecodeError:
        problem = f"the file {str(file)!r} is no text in UTF-8"
    raise ConfigError([Mistake(SECRET_KEY_FILE, problem)])


def _fernet() -> ModuleType:
    try:
        from cryptography import fernet
    except ModuleNotFoundError as missing:
        raise MissingExtraError("webhooks", "cryptography") from missing
    return fernet


def _key(module: ModuleType, number: int, key: str) -> Fernet:
    try:
        made: Fernet = module.Fernet(key)
    except ValueError:
        problem = f"key {number}: expected 32 bytes in URL-safe base64, as `turnout subscriptions secret-key` prints"
        raise ConfigError([Mistake(SECRET_KEY, problem)]) from None
    return made


def sealed_all(subscriptions: Iterable[_Stored]) -> Iterator[_Stored]:
    """Yield new subscriptions with their secrets encrypted: what every store does before it keeps any.

    Raises:
        SubscriptionInvalidError: there is no key, or a sealed secret is not of this subscription and these keys.
    """
    for one in subscriptions:
        yield _sealed(one, one.id or new_id(), None) if isinstance(one, Subscription) and _has_secrets(one) else one


def resealed(keys: SecretKeys, subscription: Subscription) -> Subscription:
    """Return a stored subscription with its secrets encrypted by the first key.

    Raises:
        SealError: no key opens a secret, or the store hides them.
    """
    delivery = subscription.delivery
    if delivery is None or not delivery.has_secrets:
        return subscription
    credentials = () if delivery.credentials is None else (delivery.credentials,)
    *secrets_, last = (keys.resealed(subscription.id, one) for one in _all_sealed((*delivery.secrets, *credentials)))
    if not credentials:
        return replace(subscription, delivery=replace(delivery, secrets=(*secrets_, last)))
    return replace(subscription, delivery=replace(delivery, secrets=tuple(secrets_), credentials=last))


def stored_version(id: str, subscription: Subscription, read: Callable[[str], Subscription]) -> Subscription:
    """Return a new version as a store keeps it: what every store does before an update.

    Plain secrets are encrypted, markers are replaced by the stored secrets that they stand for, and stored secrets
    stay as they are, also without a key.

    Args:
        id: id of the subscription in the store.
        subscription: the new version.
        read: returns the stored version.

    Raises:
        SubscriptionInvalidError: see `checked_version` and `sealed_all`; or a marker stands for no stored secret.
        SubscriptionNotFoundError: there is no stored version.
    """
    version = checked_version(id, subscription)
    if not _has_secrets(version):
        return version
    return _sealed(version, id, read(id).delivery)


def _has_secrets(subscription: Subscription) -> bool:
    return subscription.delivery is not None and subscription.delivery.has_secrets


def _sealed(subscription: Subscription, id_: str, stored: DeliverySettings | None) -> Subscription:
    delivery = subscription.delivery
    assert delivery is not None
    kept = _by_name(() if stored is None else stored.secrets)
    new = []
    what = ""
    try:
        for index, secret in enumerate(delivery.secrets):
            what = f"secrets[{index}]"
            new.append(_stored_form(id_, secret, kept))
        credentials = delivery.credentials
        if credentials is not None:
            what = "credentials"
            # A marker of a signing secret stands for no credentials.
            known = _by_name(() if stored is None or stored.credentials is None else (stored.credentials,))
            credentials = _stored_form(id_, credentials, known)
    except SealError as problem:
        raise SubscriptionInvalidError(f"delivery.{what}: {problem}") from problem
    return replace(subscription, id=id_, delivery=replace(delivery, secrets=tuple(new), credentials=credentials))


def _by_name(stored: Iterable[SigningSecret]) -> dict[str, SealedSecret]:
    return {one.name: one for one in stored if isinstance(one, SealedSecret)}


def _stored_form(id_: str, secret: SigningSecret, kept: Mapping[str, SealedSecret]) -> SealedSecret:
    if isinstance(secret, HiddenSecret):
        if secret.name not in kept:
            known = ", ".join(repr(one) for one in kept.values()) or "none"
            raise SealError(f"{secret!r} stands for no stored secret of this subscription; it has {known}")
        return kept[secret.name]
    if isinstance(secret, SealedSecret) and secret in kept.values():
        return secret
    keys = _present_keys()
    if isinstance(secret, PlainSecret):
        return keys.seal(id_, secret)
    keys.open(id_, secret)
    return secret
