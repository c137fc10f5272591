"""Conditional requests and HEAD, for every resource with an entity tag (RFC 9110, sections 9.3.2 and 13).

A request that changes something evaluates its conditions where the change is made, under the same lock or revision:
`Preconditions.check`. Reads are evaluated on their answers, by `ConditionalReads`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Header, Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.errors import ConfigError, Mistake
from turnout.server.errors import StaleError
from turnout.server.rest.problems import problem

_TAG = re.compile(r'(?:(?P<weak>W/)?"(?P<tag>[\x21\x23-\x7e\x80-\xff]*)"[ \t]*)?(?:,[ \t]*|$)')
_OF_CONTENT = ("content-length", "content-type", "content-encoding", "content-language")


@dataclass(frozen=True, slots=True)
class EntityTag:
    """Tag of a version of a resource; a weak one names versions that are only equivalent."""

    tag: str
    weak: bool = False

    def __str__(self) -> str:
        return f'{"W/" if self.weak else ""}"{self.tag}"'


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The conditions of a request; None where a header is absent, and no tags where it is ``*``, any version.

    >>> Preconditions.parse('"5", "6"').check("6")
    >>> Preconditions.parse(none_match="*").check(None)
    >>> Preconditions.parse('"5"').check("6")
    Traceback (most recent call last):
        ...
    turnout.server.errors.StaleError: If-Match: expected the version "5", found "6"
    """

    match: tuple[EntityTag, ...] | None = None
    none_match: tuple[EntityTag, ...] | None = None

    @classmethod
    def parse(cls, match: str | None = None, none_match: str | None = None) -> Preconditions:
        """Read the values of If-Match and If-None-Match.

        Raises:
            ConfigError: one of them has no form that RFC 9110 allows.
        """
        return cls(_tags("If-Match", match), _tags("If-None-Match", none_match))

    def check(self, tag: str | None) -> None:
        """Refuse a change of the version with this tag; None if the resource does not exist.

        Raises:
            StaleError: a condition is false; nothing may be changed.
        """
        found = "nothing" if tag is None else f'"{tag}"'
        if self.match is not None and (tag is None or (self.match and EntityTag(tag) not in self.match)):
            expected = " or ".join(map(str, self.match)) or "that exists"
            weak = "; a weak tag (W/) matches none" if any(one.weak for one in self.match) else ""
            raise StaleError(f"If-Match: expected the version {expected}, found {found}{weak}")
        if self.none_match is not None and tag is not None and self.is_known(tag):
            raise StaleError(f"If-None-Match: the version {found} exists")

    def is_known(self, tag: str) -> bool:
        """Return True if If-None-Match names the version with this tag, by the weak comparison."""
        return self.none_match is not None and (not self.none_match or any(one.tag == tag for one in self.none_match))


UNCONDITIONAL: Final = Preconditions()


def _tags(header: str, value: str | None) -> tuple[EntityTag, ...] | None:
    if value is None:
        return None
    text = value.strip(" \t")
    if text == "*":
        return ()
    tags, position = [], 0
    while position < len(text):
        found = _TAG.match(text, position)
        if found is None:
            break
        if found["tag"] is not None:
            tags.append(EntityTag(found["tag"], found["weak"] is not None))
        position = found.end()
    if position < len(text) or not tags:
        raise ConfigError(
            [Mistake(header, f'expected * or entity tags in quotes, as "5" or "5", "6"; found {value!r}')],
            what="bad request",
        )
    return tuple(tags)


def _joined(headers: Headers, name: str) -> str | None:
    """Return the value of a header that may be a list in several lines."""
    values = headers.getlist(name)
    return ", ".join(values) if values else None


def preconditions(
    request: Request,
    if_match: Annotated[  # noqa: ARG001 - for the description
        str | None, Header(alias="If-Match", description="ETag of the version that was read; others are refused")
    ] = None,
    if_none_match: Annotated[  # noqa: ARG001 - for the description
        str | None, Header(alias="If-None-Match", description="`*`: only what does not exist yet")
    ] = None,
) -> Preconditions:
    """Return the conditions of a request, for an endpoint that evaluates them."""
    return Preconditions.parse(_joined(request.headers, "If-Match"), _joined(request.headers, "If-None-Match"))


Conditions = Annotated[Preconditions, Depends(preconditions)]


def refuse_unread_conditions(connection: HTTPConnection) -> None:
    """Refuse an If-Match on a change whose endpoint evaluates none: what it is about has no entity tag.

    Raises:
        StaleError: the condition is false of a resource without a tag; nothing was changed.
    """
    route, method = connection.scope.get("route"), connection.scope.get("method", "GET")
    if method in ("GET", "HEAD") or "if-match" not in connection.headers or not isinstance(route, APIRoute):
        return
    if not any(one.call is preconditions for one in route.dependant.dependencies):
        raise StaleError(f"If-Match: {method} {route.path} has no entity tag to compare; nothing was changed")


class ConditionalReads:
    """ASGI middleware that answers HEAD as GET without the content, and GET with 304 or 412 by the tag of its answer.

    Args:
        app: the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_head = scope["method"] == "HEAD"
        is_conditional = "if-match" in headers or "if-none-match" in headers
        if not is_head and not is_conditional:
            await self._app(scope, receive, send)
            return
        conditions = UNCONDITIONAL
        if is_conditional:
            try:
                conditions = Preconditions.parse(_joined(headers, "if-match"), _joined(headers, "if-none-match"))
            except ConfigError as wrong:
                await problem(422, wrong)(scope, receive, send)
                return
        ended = False

        async def received() -> Message:
            # The content of the answer, which may be a stream without an end, is not wanted any more.
            return {"type": "http.disconnect"} if ended else await receive()

        async def answer(message: Message) -> None:
            nonlocal ended
            if ended:
                return
            if message["type"] == "http.response.start":
                refusal = _evaluate(conditions, message)
                if refusal is not None:
                    ended = True
                    await problem(412, refusal)(scope, receive, send)
                    return
                await send(message)
                if is_head or message["status"] == 304:
                    ended = True
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            await send(message)

        await self._app({**scope, "method": "GET"} if is_head else scope, received, answer)


def _evaluate(conditions: Preconditions, start: Message) -> StaleError | None:
    """Evaluate the conditions of a read on the start of its answer: an error for 412; 304 is written into the start."""
    headers = MutableHeaders(raw=list(start.get("headers", [])))
    tag = headers.get("etag")
    if start["status"] != 200 or tag is None:
        return None
    tag = tag.removeprefix("W/").strip('"')
    try:
        Preconditions(conditions.match).check(tag)
    except StaleError as refusal:
        return refusal
    if conditions.is_known(tag):
        for name in _OF_CONTENT:
            if name in headers:
                del headers[name]
        start["status"], start["headers"] = 304, headers.raw
    return None
