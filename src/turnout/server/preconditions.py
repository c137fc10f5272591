"""Conditional requests and HEAD, for every resource with an entity tag (RFC 9110, sections 9.3.2 and 13).

A request that changes something evaluates its conditions where the change is made, under the same lock or revision:
`Preconditions.check`. Reads are evaluated on their answers, by `ConditionalReads`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Final

from fastapi import Depends, Header, Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.base.clocks import with_zone
from turnout.errors import ConfigError, Mistake
from turnout.server.errors import StaleError, problem

_TAG = re.compile(r'(?:(?P<weak>W/)?"(?P<tag>[\x21\x23-\x7e\x80-\xff]*)"[ \t]*)?(?:,[ \t]*|$)')
_OF_CONTENT = ("content-length", "content-type", "content-encoding", "content-language", "content-range")
_CONDITIONS: Final = frozenset({"if-match", "if-none-match", "if-unmodified-since"})
_CONDITIONAL_STATUSES: Final = (200, 206, 304, 416)


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
            ConfigError: one of them is neither ``*`` nor a list of tags. An empty list, which RFC 9110 allows, is
                refused too: it names no version, and its sender surely meant one.
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

    def of_versions(self) -> Preconditions:
        """Return the conditions on the versions alone, where a tag is a version and a digest of what was read.

        >>> Preconditions.parse('"5-ab", "6"').of_versions().check("5")
        """
        return Preconditions(_versions(self.match), _versions(self.none_match))

    def is_known(self, tag: str) -> bool:
        """Return True if If-None-Match names the version with this tag, by the weak comparison."""
        return self.none_match is not None and (not self.none_match or any(one.tag == tag for one in self.none_match))


UNCONDITIONAL: Final = Preconditions()


def _versions(tags: tuple[EntityTag, ...] | None) -> tuple[EntityTag, ...] | None:
    return None if tags is None else tuple(replace(tag, tag=tag.tag.partition("-")[0]) for tag in tags)


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
    """Refuse a false condition on a change whose endpoint evaluates none: what it is about has no entity tag.

    Raises:
        StaleError: there is an If-Match, or an If-None-Match `*` of what can be read; nothing was changed.
    """
    route, method = connection.scope.get("route"), connection.scope.get("method", "GET")
    if method in ("GET", "HEAD") or not isinstance(route, APIRoute):
        return
    if any(one.call is preconditions for one in route.dependant.dependencies):
        return
    if "if-match" in connection.headers:
        raise StaleError(f"If-Match: {method} {route.path} has no entity tag to compare; nothing was changed")
    # The description has what can be read; the framework's routes are nested.
    if connection.headers.get("if-none-match", "").strip() == "*" and "get" in connection.app.openapi()["paths"].get(
        route.path_format, ()
    ):
        raise StaleError(f"If-None-Match: {route.path_format} exists; nothing was changed")


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
        is_conditional = not _CONDITIONS.isdisjoint(headers.keys())
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
                refusal = _evaluate(conditions, headers.get("if-unmodified-since"), message)
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

        given = scope["headers"]
        if "if-none-match" in headers:
            # Files would be answered with 304 before the conditions that come first, and by their time too.
            given = [header for header in given if header[0] not in (b"if-none-match", b"if-modified-since")]
        await self._app({**scope, "method": "GET", "headers": given}, received, answer)


def _evaluate(conditions: Preconditions, unmodified_since: str | None, start: Message) -> StaleError | None:
    """Evaluate the conditions of a read on the start of its answer: an error for 412; 304 is written into the start.

    A part of a file and a file that the browser has already are answers too, whose conditions come first.
    """
    headers = MutableHeaders(raw=list(start.get("headers", [])))
    if start["status"] not in _CONDITIONAL_STATUSES:
        return None
    modified = headers.get("last-modified")
    if conditions.match is None and unmodified_since is not None and modified is not None:
        expected = _time(unmodified_since)
        if expected is not None and parsedate_to_datetime(modified) > expected:
            return StaleError(f"If-Unmodified-Since: modified {modified}")
    tag = headers.get("etag")
    if tag is None:
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


def _time(text: str) -> datetime | None:
    """Return the time of a header; None if it is none, which RFC 9110 has ignored."""
    try:
        time = parsedate_to_datetime(text)
    except ValueError:
        return None
    return with_zone(time)
