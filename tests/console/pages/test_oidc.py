"""Sign-in at a provider: a real flow over sockets, and answers that prove nothing."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.console.browser import MISSING, chromium, text_of, until
from tests.server.fakes import FakeRunner
from tests.server.oidc_provider import CLIENT, SECRET, Provider, provider
from turnout.console import add_console
from turnout.errors import ConfigError
from turnout.rpc.caller import Right
from turnout.server.config import ServerConfig
from turnout.server.oidc import SessionAuthenticator, Sessions
from turnout.server.security import Principal
from turnout.server.serving import RouteServer

ROLES = {"operators": ["read", "write"], "viewers": ["read"]}


@pytest.fixture
def at() -> Iterator[Provider]:
    with provider() as made:
        yield made


def part(at: Provider, url: str, **more: Any) -> dict[str, Any]:
    return {
        "issuer": at.issuer, "clientId": CLIENT, "clientSecret": SECRET, "url": url,
        "rolesClaim": "realm_access.roles", "roles": ROLES, **more,
    }  # fmt: skip


@pytest.fixture
def served(at: Provider, tmp_path: Path) -> Iterator[RouteServer]:
    """A server that knows the provider and no token."""
    (tmp_path / "routes").mkdir()
    runner = FakeRunner()
    config = ServerConfig.model_validate({"listen": "127.0.0.1:0", "oidc": part(at, "http://127.0.0.1:1")})
    with RouteServer(config, [tmp_path / "routes"], runner_of=lambda *_: runner, pages=add_console) as server:
        # The port of the redirect address is known only now.
        object.__setattr__(_sign_in_of(server).settings, "url", server.url)
        yield server


def _sign_in_of(server: RouteServer) -> Any:
    assert isinstance(server.authenticator, SessionAuthenticator)
    return server.authenticator.sign_in


@pytest.fixture
def browser(served: RouteServer) -> Iterator[httpx2.Client]:
    headers = {"Accept": "text/html"}
    with httpx2.Client(base_url=served.url, timeout=30, headers=headers, follow_redirects=False) as client:
        yield client


def go(browser: httpx2.Client, at: Provider, target: str = "/") -> str:
    """Begin, agree at the provider, and return the address of the callback."""
    begun = browser.get("/sign-in/oidc", params={"next": target})
    assert begun.status_code == 303, begun.text
    query = {name: values[0] for name, values in parse_qs(urlsplit(begun.headers["location"]).query).items()}
    return at.location(query)


def test_somebody_signs_in_and_out(browser: httpx2.Client, at: Provider, served: RouteServer) -> None:
    """PKCE and the nonce go with the request; the session has the rights of the role, and ends at once."""
    sent = browser.get("/routes/x?range=24h")
    page = browser.get(sent.headers["location"]).text
    begun = browser.get("/sign-in/oidc", params={"next": "/routes/x?range=24h"})
    query = {name: values[0] for name, values in parse_qs(urlsplit(begun.headers["location"]).query).items()}
    pending = begun.headers["set-cookie"]
    done = browser.get(at.location(query))
    session = done.headers.get_list("set-cookie")[0]
    me = browser.get("/")

    assert f"Sign in with localhost:{at.port}</a>" in page
    assert 'id="token"' not in page, "there are no tokens"
    assert query["scope"] == "openid profile"
    assert {len(query[name]) for name in ("state", "nonce", "code_challenge")} == {43}
    assert "HttpOnly" in pending
    assert "samesite=lax" in pending.lower()
    assert "Path=/sign-in" in pending
    assert SECRET not in pending + begun.headers["location"]
    assert at.token_requests[0]["code_verifier"] != query["code_challenge"]
    assert "client_secret" not in at.token_requests[0]
    assert '<meta http-equiv="refresh" content="0;url=/routes/x?range=24h">' in done.text
    assert "HttpOnly" in session
    assert "samesite=strict" in session.lower()
    assert "Max-Age=28800" in session
    assert (me.status_code, "<bdi>ann</bdi>" in me.text, 'id="new-route"' in me.text) == (200, True, True)
    cookie = browser.cookies["turnout"]
    assert browser.post("/sign-out", json={}).status_code == 204
    assert browser.get("/", headers={"Cookie": f"turnout={cookie}"}).status_code == 303
    assert browser.get("/v1/routes", headers={"Authorization": f"Bearer {cookie}"}).status_code == 401


def test_roles_are_rights(browser: httpx2.Client, at: Provider) -> None:
    """A role that only reads writes nothing; somebody without a role of this server is refused."""
    at.roles = ["viewers", "others", 17]
    assert browser.get(go(browser, at)).status_code == 200
    assert 'id="new-route"' not in browser.get("/").text
    assert browser.put("/v1/routes/a", json={"text": "name: a"}).status_code == 403
    browser.cookies.clear()
    at.roles = ["others"]
    refused = browser.get(go(browser, at))

    assert (refused.status_code, "has no role of this server" in refused.text) == (403, True)
    assert browser.get("/").status_code == 303


def _unsigned(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, "", "none", {"kid": "k1"})


def _by_a_secret(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, SECRET * 2, "HS256", {"kid": "k1"})


def _by_another_key(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, rsa.generate_private_key(65537, 2048), "RS256", {"kid": "k1"})


def _with_its_own_key(claims: dict[str, Any]) -> str:
    key = rsa.generate_private_key(65537, 2048)
    own = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return jwt.encode(claims, key, "RS256", {"kid": "evil", "jwk": own})


WRONG_TOKENS: list[tuple[str, dict[str, Any], Callable[[dict[str, Any]], str] | None]] = [
    ("another sign-in (nonce)", {"nonce": "other"}, None),
    ("another sign-in (nonce)", {"nonce": None}, None),
    ("not the provider's", {"iss": "https://elsewhere.example"}, None),
    ("not for this server", {"aud": "another-client"}, None),
    ("another client (azp)", {"aud": [CLIENT, "another-client"]}, None),
    ("another client (azp)", {"azp": "another-client"}, None),
    ("has expired", {"exp": int(time.time()) - 60}, None),
    ("has expired", {"exp": None}, None),
    ("not the provider's", {}, _unsigned),
    ("not the provider's", {}, _by_a_secret),
    ("not the provider's", {}, _by_another_key),
    ("not the provider's", {}, _with_its_own_key),
    ("not the provider's", {}, lambda _: "a.b.c"),
]


@pytest.mark.parametrize(("problem", "claims", "sign"), WRONG_TOKENS)
def test_a_token_that_proves_nothing_opens_no_session(
    browser: httpx2.Client, at: Provider, problem: str, claims: dict[str, Any], sign: Callable[..., str] | None
) -> None:
    """Wrong nonce, issuer, audience, time, algorithm or key; the page says what is wrong, without the token."""
    at.claims = lambda made: {name: value for name, value in (made | claims).items() if value is not None}
    at.sign = sign
    refused = browser.get(go(browser, at))

    assert refused.status_code == 403
    assert problem in refused.text.replace("&#39;", "'")
    assert "turnout" not in browser.cookies
    assert browser.get("/").status_code == 303


def test_an_answer_is_taken_once_and_by_its_browser_alone(browser: httpx2.Client, at: Provider) -> None:
    """Neither a state that was used, nor another browser's, nor a cookie that somebody made, nor one after its time."""
    address = go(browser, at)
    pending = browser.cookies["turnout-sign-in"]
    other = browser.get(address, headers={"Cookie": "none=1"})
    forged = browser.get(address, headers={"Cookie": f"turnout-sign-in={pending[:-4]}beef"})
    swapped = browser.get(re.sub("state=[^&]+", "state=other", address))
    browser.cookies.set("turnout-sign-in", pending)
    first = browser.get(address)
    replayed = browser.get(address, headers={"Cookie": f"turnout-sign-in={pending}"})

    assert [one.status_code for one in (other, forged, swapped, first, replayed)] == [403, 403, 403, 200, 403]
    assert "not begun in this browser" in other.text
    assert "finished before" in replayed.text
    assert len(at.token_requests) == 1


def test_a_sign_in_has_ten_minutes(at: Provider, served: RouteServer) -> None:
    """Then its cookie is as good as none."""
    sign_in = _sign_in_of(served)
    address, cookie = sign_in.begin("/")
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    back = {name: values[0] for name, values in parse_qs(urlsplit(at.location(query)).query).items()}
    sign_in._clock = lambda: time.time() + 601

    with pytest.raises(Exception, match="took too long"):
        sign_in.finish(back, cookie)


@pytest.mark.parametrize(
    "target", ["//elsewhere.example", "https://elsewhere.example/", "/\\elsewhere.example", "\t//e"]
)
def test_nobody_is_sent_to_another_server(browser: httpx2.Client, at: Provider, target: str) -> None:
    """An address that is no path of this server is its first page."""
    assert '<meta http-equiv="refresh" content="0;url=/">' in browser.get(go(browser, at, target)).text


def test_what_a_provider_answers_wrong_is_told(browser: httpx2.Client, at: Provider) -> None:
    """A refusal of the user is text, and the answer of another provider is refused."""
    at.answered = {"error": "access_denied", "error_description": "<b>no</b>"}
    denied = browser.get(go(browser, at))
    at.answered = {"iss": "https://elsewhere.example"}
    mixed_up = browser.get(go(browser, at))
    at.answered = {}

    assert "access_denied &lt;b&gt;no&lt;/b&gt;" in denied.text
    assert "another provider" in mixed_up.text


@pytest.mark.parametrize(
    ("described", "problem"),
    [
        ({"issuer": "https://elsewhere.example"}, "calls itself"),
        ({"token_endpoint": "http://elsewhere.example/token"}, "no https:// addresses"),
        ({"jwks_uri": None}, "no https:// addresses"),
    ],
)
def test_a_description_that_cannot_be_trusted_begins_nothing(
    browser: httpx2.Client, at: Provider, described: dict[str, Any], problem: str
) -> None:
    """No browser is sent anywhere."""
    at.described = described
    begun = browser.get("/sign-in/oidc")

    assert (begun.status_code, problem in begun.text) == (502, True)


def test_sessions_end(at: Provider) -> None:
    """By their time; and the oldest of too many."""
    now = [0.0]
    sessions = Sessions(60, lambda: now[0])
    cookie = sessions.open(Principal("ann"))

    assert sessions.principal(cookie) == Principal("ann")
    now[0] = 60.0
    assert sessions.principal(cookie) is None
    first = sessions.open(Principal("bob"))
    for _ in range(10_000):
        sessions.open(Principal("eve"))
    assert sessions.principal(first) is None


def test_settings_that_cannot_be_safe_are_refused(tmp_path: Path) -> None:
    """Addresses others can read on the way, roles that are none, a secret as a variable; a secret is not shown."""
    file = tmp_path / "turnout.yaml"

    def load(**more: Any) -> ServerConfig:
        oidc = {"issuer": "https://login.example", "clientId": "c", "url": "https://t.example", "roles": ROLES}
        file.write_text(json.dumps({"oidc": oidc | more}))
        return ServerConfig.load(file, {"OIDC_SECRET": "hunter2"})

    loaded = load(clientSecret="${OIDC_SECRET}", session="30m")
    assert loaded.oidc is not None
    assert "hunter2" not in repr(loaded)
    assert (loaded.oidc.client_secret.get_secret_value(), loaded.oidc.session) == ("hunter2", 1800.0)
    assert loaded.oidc.roles["viewers"] == (Right.READ,)
    for more, problem in (
        ({"issuer": "http://login.example"}, "expected an https:// URL"),
        ({"url": "http://t.example"}, "expected an https:// URL"),
        ({"roles": {"a": ["admin"]}}, "oidc.roles.a.0"),
        ({"roles": {}}, "oidc.roles"),
        ({"scopes": ["profile"]}, "expected openid"),
        ({"clientSecret": "${MISSING}"}, "MISSING"),
        ({"clientID": "c"}, "did you mean"),
    ):
        with pytest.raises(ConfigError) as refused:
            load(**more)
        assert problem in str(refused.value), more


@pytest.mark.skipif(chromium() is None, reason=MISSING)
def test_a_browser_comes_back_from_the_provider(served: RouteServer, driver: webdriver.Chrome) -> None:
    """From another site: the strict cookie of the session is there for the first page, without a further click."""
    driver.get(f"{served.url}/subscriptions?id=a")
    until(driver, lambda _: driver.current_url.startswith(f"{served.url}/sign-in?"))
    driver.find_element(By.ID, "to-provider").click()
    until(driver, lambda _: driver.title == "Provider")
    driver.find_element(By.ID, "agree").click()
    until(driver, lambda _: driver.current_url == f"{served.url}/subscriptions?id=a")

    assert text_of(driver, "header small") == "ann"
    driver.find_element(By.CSS_SELECTOR, "header form button").click()
    until(driver, lambda _: driver.current_url.startswith(f"{served.url}/sign-in"))
    driver.get(served.url)
    until(driver, lambda _: "/sign-in?next=" in driver.current_url)
