"""``/sign-in``: a token, or an identity at a provider, becomes a cookie that scripts and other sites cannot use."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import Field

from turnout.console.render import page, page_router
from turnout.rpc.status import RefusedError
from turnout.server.oidc import OidcSignIn, SessionAuthenticator, SignInRefusedError
from turnout.server.rest.models import RequestForm
from turnout.server.security import Authenticator, cookie_of

PATH: Final = "/sign-in"
COOKIE: Final = "turnout"
_PENDING_COOKIE: Final = "turnout-sign-in"


_OWN_PATH = re.compile(r"/(?![/\\])[^\x00-\x20\x7f\\]*")


class TokenForm(RequestForm):
    """A bearer token."""

    token: str = Field(min_length=1, max_length=10_000)


_Shown = Callable[[Request, str, str, int], HTMLResponse]
"""Renders the page with the path to go to, a problem, and a status."""


def router_of(authenticator: Authenticator) -> APIRouter:
    """Return the router of the sign-in page, which also receives the token or the provider's answer."""
    router = page_router()
    sessions = authenticator if isinstance(authenticator, SessionAuthenticator) else None
    takes_tokens = sessions is None or sessions.tokens is not None
    provider = None if sessions is None else sessions.sign_in

    def shown(request: Request, target: str, problem: str = "", code: int = 200) -> HTMLResponse:
        host = "" if provider is None else urlsplit(provider.settings.issuer).netloc
        values = {"next": _own(target), "provider": host, "takes_tokens": takes_tokens, "problem": problem}
        return page(request, "sign_in.html", values, code=code)

    @router.get(PATH)
    def sign_in(request: Request, next: str = "/") -> HTMLResponse:  # noqa: A002 - the name in the address
        return shown(request, next)

    @router.post(PATH, status_code=204)
    def signed_in(form: TokenForm, request: Request, response: Response) -> None:
        token = form.token.strip()
        try:
            principal = authenticator.principal(token)
        except RefusedError as busy:
            raise HTTPException(503, busy.details) from busy
        if principal is None:
            raise HTTPException(403, "this token is unknown")
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure)

    @router.post("/sign-out", status_code=204)
    def signed_out(request: Request, response: Response) -> None:
        cookie = cookie_of(request.headers.get("cookie", ""), COOKIE)
        if sessions is not None and cookie:
            sessions.sign_in.sessions.close(cookie)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")

    if provider is not None:
        _add_provider(router, provider, shown)
    return router


def _add_provider(router: APIRouter, provider: OidcSignIn, shown: _Shown) -> None:
    """Add the way to the provider, and the way back."""
    secure = provider.settings.url.startswith("https:")

    @router.get(f"{PATH}/oidc")
    def to_provider(request: Request, next: str = "/") -> Response:  # noqa: A002 - the name in the address
        try:
            address, cookie = provider.begin(_own(next))
        except SignInRefusedError as refused:
            return shown(request, next, str(refused), 502)
        response = RedirectResponse(address, 303)
        # The provider's answer comes from its page: a strict cookie would not come with it.
        response.set_cookie(_PENDING_COOKIE, cookie, path=PATH, httponly=True, samesite="lax", secure=secure)
        return response

    @router.get(f"{PATH}/callback")
    def from_provider(request: Request) -> Response:
        pending = cookie_of(request.headers.get("cookie", ""), _PENDING_COOKIE)
        response: Response
        try:
            session, target = provider.finish(dict(request.query_params), pending)
        except SignInRefusedError as refused:
            response = shown(request, "/", str(refused), 403)
        else:
            # A redirect would still be the provider's request, without the strict cookie: this page loads the next one.
            response = page(request, "signed_in.html", next=_own(target))
            lasts = int(provider.settings.session)
            response.set_cookie(COOKIE, session, lasts, httponly=True, samesite="strict", secure=secure)
        response.delete_cookie(_PENDING_COOKIE, path=PATH, httponly=True, samesite="lax")
        return response


def _own(target: str) -> str:
    r"""Return the path if it is one of this server, else ``/``.

    Browsers leave out tabs and line breaks, and read a backslash as a slash: an address with any of them is refused.

    >>> _own("/routes/a"), _own("//elsewhere.example"), _own("https://elsewhere.example"), _own("/\t/elsewhere.example")
    ('/routes/a', '/', '/', '/')
    """
    return target if _OWN_PATH.fullmatch(target) else "/"
