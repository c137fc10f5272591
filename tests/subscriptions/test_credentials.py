"""Credentials of endpoints as texts: what is refused, how stores keep them, and what callers see."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from turnout.conditions import parse
from turnout.errors import ConfigError, SubscriptionInvalidError
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.credentials import Credentials
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.lines import subscription_to_json
from turnout.subscriptions.sealing import SECRET_KEY, SecretKeys, new_key, opened_secrets, resealed

KEY = {"headers": {"X-Api-Key": "open sesame"}}
LOGIN = {"tokenUrl": "https://id.example/token", "clientId": "c", "clientSecret": "hush"}


def of(credentials: object) -> DeliverySettings:
    return DeliverySettings.from_mapping({"credentials": credentials})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("hush", "expected an object, found str"),
        ({}, "expected one of headers, basic, oauth2 and certificate"),
        ({"header": {"A": "hush"}}, 'header: unknown key; did you mean "headers"?'),
        ({"headers": {"Host": "hush"}}, "Host is set by turnout"),
        ({"headers": {"webhook-id": "hush"}}, "webhook-id is set by turnout"),
        ({"headers": {"A": "hush\r\nB: c"}}, "A: expected a text of at most 4,096 visible ASCII characters"),
        ({"headers": {"A": "hush", "a": "hush"}}, "A and a are one header"),
        ({"headers": {"A": ""}}, "A is empty: is its variable set?"),
        ({"basic": {"user": "a:b", "password": "hush"}}, "basic.user: it has a colon"),
        ({"basic": {"password": "hush"}}, "basic.user: expected a text"),
        ({"basic": {"user": "a", "password": "hush"}, "headers": {"authorization": "hush"}}, "sets Authorization"),
        ({"oauth2": {**LOGIN, "tokenUrl": "ftp://x"}}, "oauth2.tokenUrl: is no URL"),
        ({"oauth2": {**LOGIN, "clientSecret": 5}}, "oauth2.clientSecret: expected a text"),
        ({"oauth2": {**LOGIN, "authentication": "hush"}}, "oauth2.authentication: expected basic or body"),
        ({"oauth2": {**LOGIN, "parameters": {"scope": "a"}}}, "oauth2.parameters.scope: is set by the other keys"),
        ({"certificate": {"chain": "hush", "key": "hush"}}, "certificate.chain: expected certificates in PEM"),
        ({"headers": "hush"}, "headers: expected an object, found str"),
        ({"basic": "hush"}, "basic: expected an object, found str"),
        ({"basic": {"user": "a", "pasword": "hush"}}, 'basic.pasword: unknown key; did you mean "password"?'),
        ({"oauth2": {**LOGIN, "parameters": "hush"}}, "oauth2.parameters: expected an object, found str"),
        ({"oauth2": {**LOGIN, "parameters": {"a": 5}}}, "oauth2.parameters.a: expected a text"),
        ({"headers": {"A": "hush" * 5_000}}, "they have more than 16,384 characters"),
    ],
)
def test_mistakes(value: object, message: str) -> None:
    """Each is named with its key and the expectation, and without a value."""
    with pytest.raises(ConfigError) as raised:
        of(value)

    assert message in str(raised.value)
    assert "hush" not in str(raised.value)


def test_a_secret_header_has_a_place() -> None:
    """The message about a secret among the headers names the key that takes it."""
    with pytest.raises(ConfigError, match=r"Authorization holds a secret: it belongs into credentials\.headers"):
        DeliverySettings.from_mapping({"headers": {"Authorization": "Bearer x"}})

    assert of({"headers": {"Authorization": "Bearer x"}}).credentials is not None


def test_stored_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store keeps them encrypted for their subscription, views have a marker, and a marker keeps them."""
    monkeypatch.setenv(SECRET_KEY, new_key())
    store = open_store("memory://")
    store.create(Subscription(["d"], "a:1", id="s", delivery=of(KEY)))
    first = store.read("s")
    assert first.delivery is not None
    assert first.delivery.credentials is not None

    shown = json.dumps(subscription_to_json(first.hidden()))
    assert "sealed" not in shown
    assert json.loads(shown)["delivery"]["credentials"] == repr(first.delivery.credentials)
    assert "open sesame" not in json.dumps(subscription_to_json(first)) + repr(first) + repr(of(KEY))

    store.update("s", replace(first.hidden(), condition=parse("a:2")))
    second = store.read("s").delivery
    assert second is not None
    assert second.credentials == first.delivery.credentials
    (text,) = opened_secrets("s", [second.credentials] if second.credentials else [])
    assert Credentials.from_text(text).headers == (("X-Api-Key", "open sesame"),)

    store.update("s", replace(first, delivery=replace(second, credentials=None)))
    third = store.read("s").delivery
    assert third is not None
    assert third.credentials is None


def test_a_marker_of_another_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker of a signing secret, or of another subscription's, stands for no credentials."""
    monkeypatch.setenv(SECRET_KEY, new_key())
    store = open_store("memory://")
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    store.create(Subscription(["d"], "a:1", id="s", delivery=DeliverySettings.from_mapping({"secrets": [secret]})))
    stored = store.read("s")
    assert stored.delivery is not None
    marker = of(repr(stored.delivery.secrets[0]))

    with pytest.raises(SubscriptionInvalidError, match=r"delivery\.credentials: hidden:.* stands for no stored secret"):
        store.update("s", replace(stored, delivery=marker))


def test_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """No store keeps credentials in plain: without a key they are refused."""
    monkeypatch.delenv(SECRET_KEY, raising=False)

    with pytest.raises(SubscriptionInvalidError, match=r"delivery\.credentials: TURNOUT_SECRET_KEY: it is not set"):
        open_store("memory://").create(Subscription(["d"], "a:1", id="s", delivery=of(KEY)))
    with pytest.raises(ConfigError, match="credentials: they are not encrypted"):
        of(KEY).to_mapping()


def test_rotation_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resealing encrypts credentials with the first key, beside the signing secrets; their marker stays."""
    one, two = new_key(), new_key()
    monkeypatch.setenv(SECRET_KEY, one)
    store = open_store("memory://")
    store.create(Subscription(["d"], "a:1", id="s", delivery=of(KEY)))
    before = store.read("s")
    after = resealed(SecretKeys([two, one]), before)
    assert before.delivery is not None
    assert after.delivery is not None
    monkeypatch.setenv(SECRET_KEY, two)

    assert after.delivery.credentials != before.delivery.credentials
    assert repr(after.delivery.credentials) == repr(before.delivery.credentials)
    assert after.delivery.credentials is not None
    assert len(opened_secrets("s", [after.delivery.credentials])) == 1


def test_as_large_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of the largest size come back from a store: a chain of certificates has room."""
    monkeypatch.setenv(SECRET_KEY, new_key())
    store = open_store("memory://")
    headers = {f"X-{number}": "k" * 4_000 for number in range(4)}
    store.create(Subscription(["d"], "a:1", id="s", delivery=of({"headers": headers})))
    written = subscription_to_json(store.read("s"))["delivery"]

    assert DeliverySettings.from_mapping(written) == store.read("s").delivery


@pytest.mark.parametrize("text", ["no, open sesame is wrong", "open sesame", "it ends with open ses"])
def test_masked(text: str) -> None:
    """A secret that a response repeats is hidden, also one whose end is cut off."""
    masked = Credentials.from_mapping(KEY).masked(text)

    assert "***" in masked
    assert "open" not in masked
