"""Trace contexts in headers of messages and requests: W3C Trace Context, and B3 by option.

Nothing here needs OpenTelemetry: engine and clients keep contexts also where no spans are made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from secrets import randbits
from typing import Final, NamedTuple

TRACEPARENT: Final = "traceparent"

_B3: Final = "b3"
_B3_MULTI: Final = ("X-B3-TraceId", "X-B3-SpanId", "X-B3-Sampled", "X-B3-Flags", "X-B3-ParentSpanId")
NAMES: Final = {
    "tracecontext": frozenset({TRACEPARENT}),
    "b3": frozenset({_B3}),
    "b3multi": frozenset(map(str.lower, _B3_MULTI)),
}
"""Names of the headers that say which span a message belongs to, in lower case, by propagator."""

HEADERS: Final = frozenset({"tracestate"}).union(*NAMES.values())
"""All headers of trace contexts, in lower case."""

_LENGTHS: Final = frozenset(map(len, HEADERS))
_MAX_CHARACTERS: Final = 512
"""Characters of a ``tracestate`` that has to be passed on (W3C Trace Context, 3.3.1.5)."""

_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_PARENT_LENGTH: Final = 55
_SINGLE: Final = re.compile(r"([0-9a-f]{16}|[0-9a-f]{32})-([0-9a-f]{16})(?:-([01d])(?:-[0-9a-f]{16})?)?")
_SAMPLED: Final = 1
_RANDOM: Final = 2


class SpanContext(NamedTuple):
    """Span that others name as their parent.

    Attributes:
        trace_id: 128 bits.
        span_id: 64 bits.
        flags: bit 0 for sampled, bit 1 for a random trace id.

    >>> context = parsed("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    >>> context.is_sampled, context.traceparent
    (True, '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01')
    """

    trace_id: int
    span_id: int
    flags: int

    @property
    def is_sampled(self) -> bool:
        """True if the spans of the trace are recorded."""
        return bool(self.flags & _SAMPLED)

    @property
    def traceparent(self) -> str:
        """Value of the header of that name."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"

    def child(self) -> SpanContext:
        """Return the context of a new span of the trace."""
        return self._replace(span_id=randbits(64) or 1)

    def ids(self) -> dict[str, str]:
        """Return the ids as logs and exemplars have them."""
        return {"trace_id": f"{self.trace_id:032x}", "span_id": f"{self.span_id:016x}"}


def new_trace(low: int | None = None) -> SpanContext:
    """Return the context of a sampled span that begins a trace; *low* are the low 64 bits of its id."""
    own = randbits(64) if low is None else low
    return SpanContext((randbits(64) << 64 | own) or 1, randbits(64) or 1, _SAMPLED | _RANDOM)


def parsed(text: str) -> SpanContext | None:
    """Return the context of a ``traceparent``; None for one that is not valid (W3C Trace Context, 3.2).

    >>> parsed("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01")
    """
    match = _PARENT.match(text)
    is_longer = len(text) > _PARENT_LENGTH
    if match is None or (is_longer and (text.startswith("00") or text[_PARENT_LENGTH] != "-")):
        return None
    return _context(match[1], match[2], int(match[3], 16) & (_SAMPLED | _RANDOM))


def _context(trace_id: str, span_id: str, flags: int) -> SpanContext | None:
    context = SpanContext(int(trace_id, 16), int(span_id, 16), flags)
    return context if context.trace_id and context.span_id else None


def context_of(headers: Mapping[str, str], propagators: Iterable[str]) -> SpanContext | None:
    """Return the context that headers name, by the first propagator that finds one.

    Args:
        headers: texts by name, in lower case.
        propagators: some of `NAMES`.
    """
    for propagator in propagators:
        if propagator == "tracecontext":
            context = parsed(headers.get(TRACEPARENT, ""))
        elif propagator == _B3:
            context = _of_b3(headers.get(_B3, "").lower())
        else:
            trace_id, span_id, sampled, flags = (headers.get(name.lower(), "").lower() for name in _B3_MULTI[:4])
            is_sampled = "d" if flags == "1" else "1" if sampled in ("1", "true") else "0"
            context = _of_b3(f"{trace_id}-{span_id}-{is_sampled}")
        if context is not None:
            return context
    return None


def _of_b3(text: str) -> SpanContext | None:
    match = _SINGLE.fullmatch(text)
    return None if match is None else _context(match[1], match[2], _SAMPLED if match[3] in ("1", "d") else 0)


def headers_of(context: SpanContext, propagators: Iterable[str]) -> dict[str, str]:
    """Return the headers of a context."""
    trace_id, span_id = context.ids().values()
    sampled = f"{context.flags & _SAMPLED}"
    written: dict[str, str] = {}
    for propagator in propagators:
        if propagator == "tracecontext":
            written[TRACEPARENT] = context.traceparent
        elif propagator == _B3:
            written[_B3] = f"{trace_id}-{span_id}-{sampled}"
        else:
            written |= zip(_B3_MULTI, (trace_id, span_id, sampled), strict=False)
    return written


def forwarded(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of trace contexts among those of a message or a request, for its successor over HTTP.

    >>> forwarded([("Traceparent", "00-…"), ("X-Other", "1"), ("tracestate", "a=1")])
    {'tracestate': 'a=1'}
    """
    return {
        name.lower(): text
        for name, text in headers
        if len(name) in _LENGTHS and name.lower() in HEADERS and _is_fit(text)
    }


def _is_fit(text: str) -> bool:
    return len(text) <= _MAX_CHARACTERS and text.isascii() and text.isprintable()
