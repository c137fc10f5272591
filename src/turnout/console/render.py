"""Rendering of templates, of errors as pages, and the store that a page shows."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException as StarletteHTTPException

from turnout.console.charts import FILTERS
from turnout.errors import ConfigError, Mistake, RouteError, TurnoutError, message_of
from turnout.routes import Route
from turnout.rpc.caller import Right
from turnout.secrets import masked_url
from turnout.server.errors import NoStoreError, status_of
from turnout.server.rest.dependencies import Parts
from turnout.server.sandbox import route_of
from turnout.server.security import Principal, is_for_programs
from turnout.subscriptions.matcher import LiveMatcher
from turnout.subscriptions.service import SubscriptionService

FRAGMENTS = "/fragments/"
"""Below it are parts of pages, for the console's own script."""

_environment = Environment(
    loader=PackageLoader("turnout.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters.update(FILTERS)


def page(
    request: Request, template: str, *contexts: Mapping[str, object], code: int = 200, **values: object
) -> HTMLResponse:
    """Render a template with the values of *contexts* and *values*, and what each page shows of server and caller."""
    principal: Principal = request.state.principal
    text = _environment.get_template(template).render(
        path=request.url.path,
        server=request.app.state.server_name or request.url.netloc,
        caller=principal.name,
        may_write=Right.WRITE in principal.caller.rights,
        signs_in=request.app.state.signs_in,
        **{name: value for context in (*contexts, values) for name, value in context.items()},
    )
    return HTMLResponse(text, code)


def page_router() -> APIRouter:
    """Return a router with pages for errors, excluded from the OpenAPI description."""
    return APIRouter(include_in_schema=False, route_class=_PageRoute)


def text_of_error(failure: TurnoutError) -> list[str]:
    """Return the mistakes of an error, a sentence each."""
    if isinstance(failure, RouteError | ConfigError):
        return [masked_url(str(mistake)) for mistake in failure.mistakes]
    return [message_of(failure)]


def answer_people_with_pages(app: FastAPI) -> None:
    """Answer a browser's request for an unknown page with a page; responses to programs are unchanged."""
    answer = app.exception_handlers[StarletteHTTPException]

    async def answered(request: Request, failure: Exception) -> Response:
        assert isinstance(failure, StarletteHTTPException)
        # Routes of the API have errors in their own form.
        unknown = failure.status_code == HTTPStatus.NOT_FOUND and "route" not in request.scope
        wants_page = "text/html" in request.headers.get("accept", "") and not is_for_programs(request.url.path)
        if unknown and wants_page:
            return _problem(request, failure.status_code, [f"There is nothing at {request.url.path}."])
        response = answer(request, failure)
        return response if isinstance(response, Response) else await response

    app.add_exception_handler(StarletteHTTPException, answered)


class _PageRoute(APIRoute):
    """Route that answers errors with a page, or within a fragment with a part of one."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        """Return the handler, with errors rendered as pages."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except TurnoutError as failure:
                return _problem(request, status_of(failure), text_of_error(failure))
            except RequestValidationError as failure:
                problems = [f"{'.'.join(map(str, error['loc'][1:]))}: {error['msg']}" for error in failure.errors()]
                return _problem(request, 422, problems)
            except HTTPException as failure:
                return _problem(request, failure.status_code, [str(failure.detail)])

        return handled


def _problem(request: Request, status: int, problems: list[str]) -> Response:
    template = "_problem.html" if request.url.path.startswith(FRAGMENTS) else "problem.html"
    return page(request, template, code=status, title=HTTPStatus(status).phrase, problems=problems)


@dataclass(frozen=True, slots=True)
class ShownStore:
    """Subscriptions of a store, and their index.

    Attributes:
        of: the route that has it; "" for the server's own, which alone can be changed here.
    """

    service: SubscriptionService
    live: LiveMatcher
    of: str = ""


def shown_store(parts: Parts, principal: Principal, of: str) -> ShownStore:
    """Return the store of a route, or without one the server's; the first route's where the server has none.

    The first call for the store of a route reads all of it.

    Raises:
        NoStoreError: neither the server nor any route has one.
        ConfigError: the route has no subscriptions, or no such store is there.
        StoreUnavailableError: it is away.
    """
    if not of:
        if parts.subscriptions is not None:
            return ShownStore(parts.subscriptions.service(principal.caller), parts.subscriptions.live(principal.caller))
        of = next(iter(routes_with_stores(parts)), "")
        if not of:
            raise NoStoreError
    live = parts.matchers.of(route_of(parts.routes.entry(of)))
    if live is None:
        raise ConfigError([Mistake("of", f"route {of} has no subscriptions")], what="bad request")
    return ShownStore(SubscriptionService(live.store), live, of)


def store_name(parts: Parts, route: Route) -> str:
    """Return the name by which `shown_store` finds the store of a route: "" for the server's, which others share."""
    return "" if route.subscriptions is None or parts.matchers.is_known(route.subscriptions.store) else route.name


def routes_with_stores(parts: Parts) -> list[str]:
    """Return the names of the routes that match subscriptions."""
    return [entry.name for entry in parts.routes.entries() if entry.version and entry.version.route.subscriptions]
