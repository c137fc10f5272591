"""Tokens of an issuer: verified by its keys, which it rotates, and callers made of their claims."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from pydantic import ValidationError

from tests.contracts.store import subscription
from tests.http_servers import server_of
from turnout.errors import SubscriptionError
from turnout.rpc import tokens
from turnout.rpc.caller import Caller, Right
from turnout.rpc.client import Channel
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.server import subscriptions_server
from turnout.rpc.status import RefusedError
from turnout.rpc.tokens import JwtSettings, JwtVerifier
from turnout.server.security import TokenFile
from turnout.subscriptions.tenants import Quota

ISSUER, AUDIENCE = "https://login.example", "turnout"


class Issuer:
    """An issuer with its keys in a file."""

    def __init__(self, file) -> None:
        self.file = file
        self.keys: dict[str, Any] = {}

    def publish(self, *ids: str) -> None:
        for id_ in ids:
            make = (
                ec.generate_private_key(ec.SECP256R1())
                if id_.startswith("ec")
                else rsa.generate_private_key(65537, 2048)
            )
            self.keys.setdefault(id_, make)
        documents = []
        for id_ in ids:
            algorithm = jwt.get_algorithm_by_name(self.algorithm(id_))
            documents.append({**algorithm.to_jwk(self.keys[id_].public_key(), as_dict=True), "kid": id_, "use": "sig"})
        self.file.write_text(json.dumps({"keys": documents}))

    @staticmethod
    def algorithm(id_: str) -> str:
        return "ES256" if id_.startswith("ec") else "RS256"

    def token(self, key: str = "k1", **claims: object) -> str:
        usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 600, "tenant": "acme"}
        given = {
            name: value for name, value in {**usual, "rights": "read write", **claims}.items() if value is not None
        }
        return jwt.encode(given, self.keys[key], self.algorithm(key), headers={"kid": key})


@pytest.fixture(scope="module")
def issuer(tmp_path_factory):
    issuer = Issuer(tmp_path_factory.mktemp("issuer") / "jwks.json")
    issuer.publish("k1", "ec1")
    return issuer


@pytest.fixture
def settings_(issuer):
    issuer.publish("k1", "ec1")
    return JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks=issuer.file.as_uri())


def test_claims_make_a_caller(issuer, settings_):
    """Tenant, rights, destinations and quota come from claims; rights that turnout does not know are passed over."""
    verifier = JwtVerifier(settings_)
    plain = verifier.caller(issuer.token(rights="openid read write"))
    whole = verifier.caller(
        issuer.token("ec1", tenant="*", rights=["match"], destinations=["acme.>"], quota={"leaves": 5, "deliveries": 3})
    )

    assert plain == Caller("acme", frozenset({Right.READ, Right.WRITE}))
    assert plain.name == "ann"
    assert whole == Caller(None, frozenset({Right.MATCH}), ("acme.>",), quota=Quota(leaves=5, deliveries=3))
    assert verifier.caller(issuer.token(rights=None)) == Caller("acme", frozenset())


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example"},
        {"aud": "other"},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"sub": None},
        {"nbf": 4_000_000_000},
    ],
    ids=str,
)
def test_tokens_that_are_not_for_here(issuer, settings_, claims):
    """Another issuer's, another audience's, expired, too early, and without what a token has to say, are unknown."""
    assert JwtVerifier(settings_).caller(issuer.token(**claims)) is None


def test_forged_tokens(issuer, settings_):
    """Without a signature, signed with the public key as a secret, by another key, or changed, they are unknown."""
    verifier = JwtVerifier(settings_)
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "eve", "exp": time.time() + 600, "tenant": "*"}
    other = rsa.generate_private_key(65537, 2048)
    head, body, signature = issuer.token().split(".")
    forged = [
        jwt.encode(claims, "", "none", headers={"kid": "k1"}),
        jwt.encode(claims, "x" * 64, "HS256", headers={"kid": "k1"}),
        jwt.encode(claims, other, "RS256", headers={"kid": "k1"}),
        jwt.encode(claims, other, "RS256", headers={"kid": "nobodys"}),
        f"{head}.{body[:-2]}xx.{signature}",
        "ey.ey.ey",
        "eyé.b.c",
    ]

    assert [verifier.caller(token) for token in forged] == [None] * len(forged)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"tenant": None}, "expected a tenant or \\*, found None"),
        ({"tenant": "a/b"}, "no tenant is named 'a/b'"),
        ({"destinations": ["a..b"]}, "expected subjects"),
        ({"quota": {"leafs": 1}}, "quota.leafs: unknown field"),
    ],
)
def test_claims_that_mean_nothing(issuer, settings_, claims, words):
    """A token of the issuer that names no caller is denied with the reason."""
    with pytest.raises(RefusedError, match=words) as refused:
        JwtVerifier(settings_).caller(issuer.token(**claims))

    assert refused.value.is_denied


def test_rotation_of_keys(issuer, settings_):
    """A new key is fetched when a token has it, at most every ten seconds; a withdrawn one is refused after a while."""
    now = 0.0
    verifier = JwtVerifier(settings_, clock=lambda: now)
    assert verifier.caller(issuer.token("k1")) is not None
    issuer.publish("k2", "ec1")

    assert verifier.caller(issuer.token("k2")) is None
    now = 11.0
    assert verifier.caller(issuer.token("k2")) is not None
    assert verifier.caller(issuer.token("k1")) is None
    issuer.file.write_text("{")
    now = 400.0
    assert verifier.caller(issuer.token("k2")) is not None
    issuer.publish("ec1")
    now = 420.0
    assert verifier.caller(issuer.token("k2")) is None


def test_keys_that_cannot_be_fetched(issuer, settings_):
    """Before any key is known it is an error that a retry may cure, and not a denial."""
    with pytest.raises(RefusedError, match="the keys of the tokens' issuer: FileNotFoundError") as refused:
        JwtVerifier(settings_.model_copy(update={"jwks": "file:///nowhere/at/all.json"})).caller(issuer.token())

    assert not refused.value.is_denied


@pytest.mark.parametrize("behaviour", ["drip", "endless"])
def test_an_issuer_that_does_not_end(issuer, settings_, behaviour, monkeypatch):
    """One caller waits for it, within a total time; callers with a known key do not wait meanwhile."""
    monkeypatch.setattr(tokens, "_TIMEOUT_SECONDS", 4.0)
    usual = issuer.file.read_bytes()
    with server_of(lambda: behaviour if ended else usual) as server:
        ended: list[int] = []
        now = 0.0
        verifier = JwtVerifier(settings_.model_copy(update={"jwks": server.url}), clock=lambda: now)
        token = issuer.token("k1")
        assert verifier.caller(token) is not None
        ended.append(1)
        now = 1_000.0
        results: list[object] = []
        fetching = threading.Thread(target=lambda: results.append(verifier.caller(token)))
        fetching.start()
        assert server.asked.wait(10)
        assert verifier.caller(token) is not None
        # The fetch of an endless answer may have ended by its size.
        assert fetching.is_alive() or behaviour == "endless"
        fetching.join(20)
        assert results[0] is not None


@pytest.mark.parametrize("jwks", ["http://login.example/keys", "ftp://login.example/keys", ""])
def test_keys_come_by_a_safe_way(jwks):
    """Keys that others on the way could replace are refused in the settings."""
    with pytest.raises(ValidationError, match=r"jwt\.jwks"):
        JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks=jwks)


def test_a_service_takes_them(backing, settings, issuer, settings_):
    """Over gRPC and HTTP the tenant, the rights and the name in the audit log are the token's."""
    with subscriptions_server(backing, replace(settings, jwt=settings_)) as server:

        def store(token: str) -> RemoteStore:
            return RemoteStore(Channel(f"127.0.0.1:{server.port}", token=token, timeout=10))

        with store(issuer.token()) as acme:
            acme.create(subscription(id="a"))
            assert [entry.actor for entry in acme.history("a")] == ["ann"]
        with store(issuer.token(rights="read")) as reader, pytest.raises(SubscriptionError, match="right to write"):
            reader.delete("a")
        with store("wrong") as stranger, pytest.raises(SubscriptionError, match="UNAUTHENTICATED"):
            stranger.read("a")
    principal = TokenFile(None, settings_).principal(issuer.token())

    assert [one.id for one in backing.snapshot()] == ["@acme/a"]
    assert principal is not None
    assert (principal.name, principal.caller.tenant) == ("ann", "acme")
