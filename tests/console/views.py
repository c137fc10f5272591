"""Views of the console: each page with what can be opened on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from fastapi import FastAPI
from fastapi.routing import APIRoute
from selenium import webdriver
from selenium.webdriver.common.by import By
from starlette.routing import Match

from tests.console.browser import fill, in_editor, press, text_of, until, write
from turnout.console import add_console
from turnout.server.security import TokenFile

__all__ = ["CLOSED", "SCENE", "VIEWS", "WEBHOOKS", "ConsolePaths", "View"]

SCENE, WEBHOOKS, CLOSED = "scene", "webhooks", "closed"
"""The servers: of `tests.console.scene`, with the endpoints that fail, and one that wants a token."""


class View(NamedTuple):
    """An address, what is done there, the server that has it, and the error of a request that is refused there."""

    address: str
    act: Callable[[webdriver.Chrome], object] = lambda _: None
    at: str = SCENE
    refused: str = "no error"


class ConsolePaths:
    """Paths of the console's router, as templates."""

    _WITHOUT_A_VIEW: Final = {"/sign-out", "/fragments/route-schema", "/fragments/condition/extended"}

    def __init__(self) -> None:
        app = FastAPI(openapi_url=None)
        # With an authenticator there is a page to sign in.
        add_console(app, TokenFile(None))
        # FastAPI keeps included routers as they are.
        routers = [getattr(included, "original_router", None) for included in app.routes]
        found = [route for router in routers if router for route in router.routes]
        self._routes = [route for route in found if isinstance(route, APIRoute)]
        assert "/" in self.all

    @property
    def all(self) -> set[str]:
        """All of them that answer with HTML."""
        return {route.path for route in self._routes} - self._WITHOUT_A_VIEW

    def of(self, path: str) -> Iterator[str]:
        """Yield the template of a requested path; nothing for one of others."""
        for route in self._routes:
            for method in sorted(route.methods or ()):
                if route.matches({"type": "http", "path": path, "method": method})[0] is Match.FULL:
                    yield route.path
                    return


def _shows(driver: webdriver.Chrome, selector: str, text: str = "") -> None:
    until(driver, lambda _: text in (found := text_of(driver, selector)) and found.strip())


def _route(driver: webdriver.Chrome) -> None:
    """Ask for a reset, and zoom into the charts."""
    until(driver, lambda _: driver.find_elements(By.CSS_SELECTOR, ".plot canvas"))
    fill(driver, "#to", "1")
    _shows(driver, "#replay", "read again")
    driver.find_element(By.CSS_SELECTOR, ".plots").send_keys("+")


def _file(driver: webdriver.Chrome) -> None:
    """Edit the file, check it, and see its effect."""
    until(driver, lambda _: in_editor(driver, ".cm-content"))
    press(driver, "form[action$='/check'] button")
    _shows(driver, "#effect", "of the last")


def _new_route(driver: webdriver.Chrome) -> None:
    """Copy a route under a name of its own, and look its names up."""
    until(driver, lambda _: in_editor(driver, ".cm-content"))
    text = str(driver.find_element(By.CSS_SELECTOR, "#text").get_attribute("value"))
    write(driver, text.replace("name: archive", "name: copy"))
    press(driver, "form[action$='/check'] button")
    until(driver, lambda _: driver.find_elements(By.CSS_SELECTOR, "#effect:not([aria-busy])"))


def _sandbox(driver: webdriver.Chrome) -> None:
    press(driver, "form[data-fragment] button")
    until(driver, lambda _: driver.find_elements(By.CSS_SELECTOR, "#explanation:not([aria-busy]) .stages"))


def _subscriptions(driver: webdriver.Chrome) -> None:
    press(driver, "form[action='/fragments/index'] button")
    _shows(driver, "#index", "conditions")


def _new_subscription(driver: webdriver.Chrome) -> None:
    fill(driver, "#part-key", "town")
    fill(driver, "#part-value", "Oulu")
    press(driver, "form[data-builder] button")
    _shows(driver, "#read", "It reads")
    _shows(driver, "#trial", "of 400")


def _mistaken(driver: webdriver.Chrome) -> None:
    fill(driver, "#condition_text", "town:(")
    _shows(driver, "#read", "^")


def _subscription(driver: webdriver.Chrome) -> None:
    _shows(driver, "#trial", "of 400")


def _dead_letters(driver: webdriver.Chrome) -> None:
    press(driver, "form[data-fragment='#redriven'] button:not(.danger)")
    _shows(driver, "#redriven", "dry run")


def _tap(driver: webdriver.Chrome) -> None:
    driver.find_element(By.CSS_SELECTOR, "#stage option:nth-child(3)").click()
    fill(driver, "#start", "1")
    press(driver, "form[data-tap] button")
    until(driver, lambda _: len(driver.find_elements(By.CSS_SELECTOR, "#tapped .record")) > 1)
    press(driver, "[data-pause]")
    press(driver, "#tapped .record button")


def _webhooks(driver: webdriver.Chrome) -> None:
    press(driver, "form[action$='/enable'] button")
    _shows(driver, "#done", "gets requests")
    press(driver, "form[action$='/redrive'] button.danger", confirmed=True)
    _shows(driver, "#done", "wait for their endpoints")


VIEWS: Final = (
    View("/"),
    View("/?show=attention&q=nothing-is-called-that"),
    View("/routes/orders", _route),
    View("/routes/orders/file", _file),
    View("/routes/orders/revisions"),
    View("/routes/orders/subscriptions"),
    View("/routes/stock"),
    View("/routes/stock/file#line-4"),
    View("/new-route"),
    View("/new-route?like=archive", _new_route),
    View("/sandbox?route=orders&at=ORDERS:2&subscription=large-in-oulu", _sandbox),
    View("/sandbox?route=orders&at=ORDERS:nowhere"),
    View("/subscriptions", _subscriptions),
    View("/subscriptions?id=nobody"),
    View("/new-subscription", _new_subscription),
    View("/new-subscription?of=orders", _mistaken, refused="/fragments/trial"),
    View("/subscriptions/large-in-oulu", _subscription),
    View("/dead-letters"),
    View("/dead-letters/orders?column=value.city&q=much&where=topic:orders.*"),
    View("/dead-letters/orders", _dead_letters),
    View("/dead-letters/orders/1", _dead_letters),
    View("/tap"),
    View("/routes/orders/records"),
    View("/routes/orders/records", _tap),
    View("/webhooks"),
    View("/webhooks", at=WEBHOOKS),
    View("/webhooks/{name}", _webhooks, WEBHOOKS),
    View("/subscriptions/desk", lambda driver: _shows(driver, "#trial"), WEBHOOKS, "/fragments/trial"),
    View("/sign-in", at=CLOSED),
    View("/nothing", refused="/nothing"),
    View("/v1/docs"),
)
