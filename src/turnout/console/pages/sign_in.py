"""``/sign-in``: exchange of a token for a cookie that scripts cannot read and other sites' pages cannot send."""

from __future__ import annotations

import re

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import Field

from turnout.console.render import page, page_router
from turnout.rpc.status import RefusedError
from turnout.server.rest.models import RequestForm
from turnout.server.security import Authenticator

PATH = "/sign-in"
COOKIE = "turnout"


_OWN_PATH = re.compile(r"/(?![/\\])[^\x00-\x20\x7f\\]*")


class TokenForm(RequestForm):
    """A bearer token."""

    token: str = Field(min_length=1, max_length=10_000)


def router_of(authenticator: Authenticator) -> APIRouter:
    """Return the router of the sign-in page, which also receives the token."""
    router = page_router()

    @router.get(PATH)
    def sign_in(request: Request, next: str = "/") -> HTMLResponse:  # noqa: A002 - the name in the address
        return page(request, "sign_in.html", next=_own(next))

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
    def signed_out(response: Response) -> None:
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")

    return router


def _own(target: str) -> str:
    r"""Return the path if it is one of this server, else ``/``.

    Browsers leave out tabs and line breaks, and read a backslash as a slash: an address with any of them is refused.

    >>> _own("/routes/a"), _own("//elsewhere.example"), _own("https://elsewhere.example"), _own("/\t/elsewhere.example")
    ('/routes/a', '/', '/', '/')
    """
    return target if _OWN_PATH.fullmatch(target) else "/"
