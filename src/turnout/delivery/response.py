"""Response of an endpoint, read within limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

GONE: Final = 410
"""Status of an endpoint that is gone for good."""

_HEAD: Final = 16_384
"""Bytes of headers, and of whatever else is around a body."""

_KEPT_BYTES: Final = 200
"""Bytes of a failed response that an attempt keeps."""


@dataclass(frozen=True, slots=True)
class Response:
    """Outcome of one request.

    Attributes:
        status: status of the response; None without one.
        retry_after: value of Retry-After.
        error: the failure; the beginning of the body of a response that is no success.
        is_sent: False if no request could be made, which says nothing about the endpoint.
    """

    status: int | None
    retry_after: str = ""
    error: str = ""
    is_sent: bool = True

    @property
    def is_success(self) -> bool:
        """True if the endpoint has taken the message."""
        return self.status is not None and 200 <= self.status < 300

    @classmethod
    def failure(cls, why: object, *, is_sent: bool = True) -> Response:
        """Return the outcome of a request without a response."""
        return cls(None, error=f"{why}"[:_KEPT_BYTES], is_sent=is_sent)


class ResponseReader:
    """Reads the responses of one connection, one after the other.

    Nothing is kept of headers but Retry-After, and nothing of bodies but the beginning: an endpoint cannot make it
    use memory.
    """

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self.begin(0)

    def begin(self, max_body: int) -> None:
        """Expect the next response.

        Args:
            max_body: bytes of its body that are read.
        """
        self._max_body = max_body
        self._left = max_body + _HEAD
        self._status = 0
        self._retry_after = b""
        self._body = b""
        self._length = 0
        self._has_end = False
        self._is_whole = False
        self.is_empty = True
        self.is_reusable = False

    def feed(self, data: bytes | memoryview) -> Response | None:
        """Read received bytes; return the response once enough of it has arrived.

        Afterwards, `is_reusable` says whether the connection may have another request.
        """
        self.is_empty = False
        self._left -= len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            return Response.failure("the endpoint switches to another protocol")
        except HttpParserError as problem:
            return self._response() if self._is_whole else Response.failure(f"no HTTP response: {problem}")
        if self._is_whole:
            return self._response()
        if self._length > self._max_body or (self._left < 0 and self._status):
            return self._response()
        return Response.failure(f"a response with over {_HEAD:,} bytes of headers") if self._left < 0 else None

    def end(self) -> Response | None:
        """Return the response whose end is that of the connection; None if it is not whole."""
        return self._response() if self._status and not self._has_end else None

    def _response(self) -> Response:
        if self._status < 300:
            return Response(self._status)
        text = self._body[:_KEPT_BYTES].decode("utf-8", "replace")
        return Response(self._status, self._retry_after[:100].decode("latin-1"), text)

    # -- called by the parser

    def on_message_begin(self) -> None:
        """Check for excess bytes: they could be taken for the answer to the next request."""
        if self._is_whole:
            self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer."""
        if self._is_whole:
            return
        lowered = name.lower()
        if lowered in (b"content-length", b"transfer-encoding"):
            self._has_end = True
        elif lowered == b"retry-after":
            self._retry_after = value

    def on_headers_complete(self) -> None:
        """Take the status of a final response; others, as 103, precede it."""
        if self._is_whole:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
        else:
            self._has_end, self._retry_after = False, b""

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if self._is_whole:
            return
        self._length += len(body)
        if len(self._body) < _KEPT_BYTES:
            self._body += body[:_KEPT_BYTES]

    def on_message_complete(self) -> None:
        """Note that the response is whole."""
        if self._status and not self._is_whole:
            self._is_whole = True
            self.is_reusable = self._parser.should_keep_alive()
