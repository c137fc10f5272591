"""Hooks of the Schemathesis runs of test_description.py: unusual headers, and a record of what was answered.

They run in a process of their own; Schemathesis loads this file by its name.
"""

from __future__ import annotations

import json
import os
import re
from itertools import count, cycle
from pathlib import Path
from typing import Any

import schemathesis

CALLS = "TURNOUT_OPENAPI_CALLS"
"""Names the file that gets a line for each answer: its status, and the operation's method and path."""

_EVERY = 7
_UNUSUAL = cycle(
    [
        ("Accept", "\xff;q=9"),
        ("Accept", "text/html"),
        ("Accept-Encoding", "gzip;q=nan"),
        ("Cookie", 'turnout="\\x; =; a=\xe9'),
        ("Forwarded", "for=unknown;host=\xfc"),
        ("If-None-Match", '"none"'),
        ("Last-Event-ID", "9" * 5000),
        ("Range", "bytes=-1,99999999999999999999-"),
        ("X-Forwarded-For", "127.0.0.1, " * 300),
        ("X-Forwarded-Prefix", "//elsewhere.example"),
        ("X-HTTP-Method-Override", "DELETE"),
    ]
)
"""None of them may change the answer's status."""
_calls = count()


@schemathesis.serializer("application/x-ndjson")
def json_lines(context: object, value: object) -> bytes:
    """Send bytes as they are, and anything else as a line of JSON."""
    return value if isinstance(value, bytes) else json.dumps(value, default=str).encode()


@schemathesis.hook
def before_call(context: object, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
    """Add an unusual header to some requests, and send no key of another request."""
    number = next(_calls)
    key = case.headers.get("Idempotency-Key") if case.headers else None
    if isinstance(key, str) and re.fullmatch("[!-~]{1,255}", key):
        case.headers["Idempotency-Key"] = f"key-{number}"
    if number % _EVERY == 0:
        name, value = next(_UNUSUAL)
        case.headers[name] = value


@schemathesis.hook
def after_call(context: object, case: schemathesis.Case, response: schemathesis.Response) -> None:
    """Write the status down."""
    with Path(os.environ[CALLS]).open("a", encoding="utf-8") as calls:
        calls.write(f"{response.status_code} {case.operation.label}\n")
