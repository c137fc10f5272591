"""Contexts in headers: what is read from them, and what is written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from turnout.delivery.requests import request_of
from turnout.server.inputs import messages_of
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.traces.context import SpanContext, context_of, forwarded, headers_of, new_trace, parsed

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
CONTEXT = SpanContext(int(TRACE, 16), int(SPAN, 16), 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PARENT, CONTEXT),
        (f"00-{TRACE}-{SPAN}-00", CONTEXT._replace(flags=0)),
        (f"00-{TRACE}-{SPAN}-03", CONTEXT._replace(flags=3)),
        (f"00-{TRACE}-{SPAN}-fd", CONTEXT._replace(flags=1)),
        (f"cc-{TRACE}-{SPAN}-01-of-the-future", CONTEXT),
        (f"cc-{TRACE}-{SPAN}-01.of-the-future", None),
        (f"{PARENT}-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (PARENT.upper(), None),
        (f" {PARENT}", None),
        (f"00-{TRACE}-{SPAN}-1", None),
        (f"00-{TRACE[1:]}\u0661-{SPAN}-01", None),
        ("", None),
    ],
)
def test_traceparent(text: str, expected: SpanContext | None) -> None:
    """The examples and the rules of W3C Trace Context; unknown flags are not passed on."""
    assert parsed(text) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"b3": f"{TRACE}-{SPAN}-1"}, CONTEXT),
        ({"b3": f"{TRACE}-{SPAN}-d-{SPAN}"}, CONTEXT),
        ({"b3": f"{TRACE[16:]}-{SPAN}-1"}, CONTEXT._replace(trace_id=int(TRACE[16:], 16))),
        ({"b3": f"{TRACE}-{SPAN}"}, CONTEXT._replace(flags=0)),
        ({"b3": "0"}, None),
        ({"b3": f"{'0' * 32}-{SPAN}-1"}, None),
        ({"x-b3-traceid": TRACE.upper(), "x-b3-spanid": SPAN, "x-b3-sampled": "1"}, CONTEXT),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": SPAN, "x-b3-flags": "1"}, CONTEXT),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": SPAN, "x-b3-sampled": "0"}, CONTEXT._replace(flags=0)),
        ({"x-b3-traceid": TRACE}, None),
        ({"traceparent": PARENT, "b3": f"{SPAN}-{SPAN}-0"}, CONTEXT),
        ({"traceparent": "00-wrong", "b3": f"{TRACE}-{SPAN}-1"}, CONTEXT),
    ],
)
def test_b3(headers: dict[str, str], expected: SpanContext | None) -> None:
    """One header or several, behind W3C's; without the option none of them counts."""
    assert context_of(headers, ("tracecontext", "b3", "b3multi")) == expected
    assert context_of(headers, ("tracecontext",)) == (expected if headers.get("traceparent") == PARENT else None)


def test_written_headers_are_read_back() -> None:
    """By each propagator, and by all of them together."""
    context = new_trace()
    everything = ("tracecontext", "b3", "b3multi")
    for propagators in (*((one,) for one in everything), everything):
        headers = {name.lower(): text for name, text in headers_of(context, propagators).items()}
        read = context_of(headers, propagators)
        assert read is not None
        assert (read.trace_id, read.span_id, read.is_sampled) == (context.trace_id, context.span_id, True)
    assert context.child().trace_id == context.trace_id
    assert context.child().span_id != context.span_id


def test_requests_pass_contexts_on() -> None:
    """Into a webhook, and from the HTTP source; not what breaks a header or is longer than others take."""
    headers = {"Traceparent": PARENT, "tracestate": "a=1", "b3": "0", "X-Other": "x"}
    kept = {"traceparent": PARENT, "tracestate": "a=1", "b3": "0"}
    stored = {name: [text] for name, text in headers.items()}

    request, fixed = (
        request_of(DeliverySettings(headers=own), "m", stored, b"{}", lambda: datetime.now(UTC), "s")[0]
        for own in ({}, {"Traceparent": "own"})
    )
    lowered = {name.lower(): text for name, text in headers.items()}
    taken = [
        message.headers
        for kind, body in (("json", b"1"), ("lines", b"1\n2"), ("github", b"{}"))
        for message in messages_of(kind, lowered, body)
    ]

    assert kept.items() <= request.items()
    assert "X-Other" not in request
    assert [text for name, text in fixed.items() if name.lower() == "traceparent"] == ["own"]
    assert len(taken) == 4
    assert all(kept.items() <= own.items() for own in taken)
    assert forwarded([("tracestate", "a=\r\nX: 1"), ("b3", "ä"), ("traceparent", "0" * 513)]) == {}
