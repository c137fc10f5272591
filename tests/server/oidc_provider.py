"""A small OpenID provider on the loopback address: real keys and signed tokens, codes that are taken once, PKCE."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

__all__ = ["CLIENT", "SECRET", "Provider", "provider"]

CLIENT, SECRET = "turnout", "a secret: of + this client"


@dataclass
class Provider:
    """The provider, whose answers a test can falsify.

    Attributes:
        claims: changes the claims of an id token.
        sign: makes the token of claims; by its own key if None.
        described: changes its description.
        answered: parameters added to the redirect back.
    """

    port: int
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    claims: Callable[[dict[str, Any]], dict[str, Any]] = dict
    sign: Callable[[dict[str, Any]], str] | None = None
    described: dict[str, Any] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    roles: Any = ("operators",)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    token_requests: list[dict[str, str]] = field(default_factory=list)

    @property
    def issuer(self) -> str:
        """Its name: another host than the server's, so that a browser takes it for another site."""
        return f"http://localhost:{self.port}"

    def description(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            **self.described,
        }

    def keys(self) -> dict[str, Any]:
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": "k1", "use": "sig", "alg": "RS256"}]}

    def location(self, query: dict[str, str]) -> str:
        """Return where a browser goes whose user has agreed."""
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], **self.answered})}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Return status and answer of the token endpoint: each code once, for its client, verifier and address."""
        self.token_requests.append(form)
        asked = self.codes.pop(form.get("code", ""), None)
        pair = base64.b64encode(f"{CLIENT}:{'a+secret%3A+of+%2B+this+client'}".encode()).decode()
        if authorization != f"Basic {pair}":
            return 401, {"error": "invalid_client"}
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        fits = asked is not None and challenge.decode() == asked["code_challenge"]
        if asked is None or not fits or form["redirect_uri"] != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "248289761001",
            "preferred_username": "ann",
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            "realm_access": {"roles": list(self.roles)},
        }
        claims = self.claims(claims)
        sign = self.sign or (lambda made: jwt.encode(made, self.key, "RS256", {"kid": "k1"}))
        return 200, {"access_token": "opaque", "token_type": "Bearer", "id_token": sign(claims)}


@contextmanager
def provider() -> Iterator[Provider]:
    """A provider that serves."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            if url.path == "/.well-known/openid-configuration":
                self._answer(200, made.description())
            elif url.path == "/keys":
                self._answer(200, made.keys())
            elif url.path == "/authorize":
                link = f'<a id="agree" href="/agreed?{url.query.replace("&", "&amp;")}">Sign in as Ann</a>'
                self._answer(200, f"<!doctype html><title>Provider</title>{link}")
            elif url.path == "/agreed":
                self.send_response(302)
                self.send_header("Location", made.location(query))
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self._answer(404, {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._answer(*made.token(form, self.headers.get("Authorization", "")))

        def _answer(self, status: int, content: dict[str, Any] | str) -> None:
            body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if isinstance(content, str) else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = Provider(server.server_port)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield made
        server.shutdown()
        thread.join()
