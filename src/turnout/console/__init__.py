"""Web console of a server: its pages, and their registration in the server's application.

Security headers (CSP) and the check of origins are in `turnout.server.security`.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from turnout.console.pages import dead_letters, route, sandbox, sign_in, subscriptions, webhooks
from turnout.console.render import answer_people_with_pages
from turnout.server.config import ServerConfig
from turnout.server.security import Authenticator, Entrance

__all__ = ["add_console"]

_STATIC = Path(str(files("turnout.console"))) / "static"
_PAGES = (route, sandbox, subscriptions, dead_letters, webhooks)


def add_console(
    app: FastAPI, authenticator: Authenticator | None = None, config: ServerConfig | None = None
) -> Entrance:
    """Add all pages of the console, and return the sign-in of browsers.

    Args:
        app: the server's, not yet behind its gate.
        authenticator: authenticates tokens; None if none are needed.
        config: of the server: its name; None for the defaults.
    """
    for pages in _PAGES:
        app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.state.server_name = config.name if config else ""
    app.state.signs_in = authenticator is not None
    answer_people_with_pages(app)
    if authenticator is None:
        return Entrance(("/static/",))
    app.include_router(sign_in.router_of(authenticator))
    return Entrance(("/static/", f"{sign_in.PATH}/"), sign_in.PATH, sign_in.COOKIE)
