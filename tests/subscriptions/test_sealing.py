"""Encryption of secrets: keys, their rotation, and what they refuse."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from turnout.errors import ConfigError, MissingExtraError
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.credentials import HiddenSecret, PlainSecret, new_secret
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.sealing import (
    SECRET_KEY,
    SECRET_KEY_FILE,
    SealError,
    SecretKeys,
    new_key,
    opened_secrets,
    resealed,
    secret_keys,
)

SECRET = PlainSecret(new_secret())
ONE, TWO, THREE = (new_key() for _ in range(3))


def test_a_sealed_secret_is_opened_for_its_subscription():
    """By any of the keys, and for no other id; its text shows the secret no more than its repr does."""
    sealed = SecretKeys([ONE]).seal("@acme/a\nb", SECRET)

    assert SecretKeys([TWO, ONE]).open("@acme/a\nb", sealed) == SECRET.text
    assert SECRET.text not in sealed.text + repr(sealed)
    assert repr(sealed) == f"hidden:{sealed.name}"
    with pytest.raises(SealError, match="for another subscription"):
        SecretKeys([ONE]).open("b", sealed)
    with pytest.raises(SealError, match="none of the keys in TURNOUT_SECRET_KEY"):
        SecretKeys([TWO, THREE]).open("@acme/a\nb", sealed)


def test_rotation_of_the_key():
    """Secrets are encrypted with the first key once; their names stay, so do those that are encrypted with it."""
    sealed = SecretKeys([ONE]).seal("a", SECRET)
    settings = DeliverySettings(secrets=(sealed,))
    subscription = Subscription(["d"], "a:1", id="a", delivery=settings)
    keys = SecretKeys([TWO, ONE])
    anew = resealed(keys, subscription)

    assert anew.delivery is not None
    (again,) = anew.delivery.secrets
    assert repr(again) == repr(sealed)
    assert again != sealed
    assert resealed(keys, anew) == anew
    assert resealed(SecretKeys([TWO]), anew) == anew
    with pytest.raises(SealError, match="none of the keys"):
        resealed(SecretKeys([TWO]), subscription)
    with pytest.raises(SealError, match="needs access to the whole store"):
        resealed(keys, replace(subscription, delivery=settings.hidden()))
    assert resealed(keys, replace(subscription, delivery=None)).delivery is None


def test_keys_of_the_environment(tmp_path):
    """Keys are a text or the content of a file, separated by commas; a file is read each time."""
    file = tmp_path / "keys"
    file.write_text(f"{ONE}\n")
    sealed = SecretKeys([ONE]).seal("a", SECRET)
    by_file = {SECRET_KEY_FILE: str(file)}

    for environment in ({SECRET_KEY: f"{TWO}, {ONE}"}, by_file):
        keys = secret_keys(environment)
        assert keys is not None
        assert keys.open("a", sealed) == SECRET.text
    file.write_text(TWO)
    changed = secret_keys(by_file)
    assert changed is not None
    with pytest.raises(SealError):
        changed.open("a", sealed)
    assert secret_keys({}) is None


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({SECRET_KEY: "short-and-wrong"}, "TURNOUT_SECRET_KEY: key 1: expected 32 bytes in URL-safe base64"),
        ({SECRET_KEY: f"{ONE},"}, "TURNOUT_SECRET_KEY: key 2: expected 32 bytes"),
        ({SECRET_KEY: ONE, SECRET_KEY_FILE: "f"}, "TURNOUT_SECRET_KEY: TURNOUT_SECRET_KEY_FILE is set too"),
        ({SECRET_KEY_FILE: "/nowhere"}, "TURNOUT_SECRET_KEY_FILE: the file '/nowhere' cannot be read: No such file"),
    ],
)
def test_keys_that_are_none(environment, message):
    """The variable, the number of the key and the expectation are named; the key is not."""
    with pytest.raises(ConfigError) as refused:
        secret_keys(environment)

    assert message in str(refused.value)
    assert "short-and-wrong" not in str(refused.value)


@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"\xff", "is no text in UTF-8")])
def test_files_without_keys(tmp_path, content, message):
    """A file without a text is refused with its path."""
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as refused:
        secret_keys({SECRET_KEY_FILE: str(file)})

    assert str(file) in str(refused.value)


def test_a_missing_package_is_named(monkeypatch):
    """Without cryptography, the extra that has it is named."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtraError, match=r'pip install "turnout\[webhooks\]"'):
        new_key()


def test_secrets_of_a_view_are_not_opened(monkeypatch):
    """A dispatcher says that it needs the whole store, or the key."""
    monkeypatch.setenv(SECRET_KEY, ONE)
    with pytest.raises(SealError, match="needs access to the whole store, not to one tenant"):
        opened_secrets("a", [HiddenSecret("0123abcd")])
    monkeypatch.delenv(SECRET_KEY)
    with pytest.raises(SealError, match="TURNOUT_SECRET_KEY: it is not set"):
        opened_secrets("a", [SecretKeys([ONE]).seal("a", SECRET)])


def test_a_new_id_is_that_of_the_seal(monkeypatch):
    """A subscription without an id gets one before its secrets are encrypted for it."""
    monkeypatch.setenv(SECRET_KEY, ONE)
    store = open_store("memory://")
    id_ = store.create(Subscription(["d"], "a:1", delivery=DeliverySettings(secrets=(SECRET,))))
    delivery = store.read(id_).delivery

    assert delivery is not None
    assert opened_secrets(id_, delivery.secrets) == [SECRET.text]
