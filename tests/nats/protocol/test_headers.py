"""Header blocks and status lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import ConfigError
from turnout.nats.protocol import headers
from turnout.nats.protocol.headers import Status, instructs_server, read_status
from turnout.runtime.nats.sink import SinkOptions

_names = st.text(alphabet="abcXYZ-_09!/;~(", min_size=1, max_size=8)
_values = st.binary(max_size=12).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b"").lstrip(b" \t"))
_lists = st.lists(st.tuples(_names, _values), max_size=4)


@given(_lists)
def test_what_is_encoded_is_parsed_again(pairs: list[tuple[str, bytes]]) -> None:
    """Names may repeat, order is kept, and any byte but a line break passes."""
    assert headers.parse(headers.encode(pairs)) == pairs


@given(st.binary(max_size=80))
def test_any_bytes_are_a_block(raw: bytes) -> None:
    """Invalid header lines are left out; nothing fails. A table has the same names and values."""
    assert all(name for name, _ in headers.parse(raw))
    table: headers.Headers = {}
    for name, value in headers.parse(b"NATS/1.0" + raw):
        table.setdefault(name, []).append(value.decode("utf-8", "replace"))
    assert headers.parse_table(b"NATS/1.0" + raw) == table
    assert read_status(raw) is None or raw.startswith(b"NATS/1.0")


def test_a_table_is_the_same_block() -> None:
    """A value may be a list, which is one line for each."""
    table = {"A": ["1", "2"], "B": "x "}

    assert headers.encode_table(table) == headers.encode([("A", "1"), ("A", "2"), ("B", "x ")])
    assert headers.parse_table(headers.encode_table(table)) == {"A": ["1", "2"], "B": ["x "]}
    assert headers.encode_table({}) == b""


def test_all_mistakes_come_at_once_without_values() -> None:
    """Each name that cannot be, and each value that would end its line early."""
    with pytest.raises(ConfigError) as wrong:
        headers.encode_table({"a b": "x", "": "y", "ä": "4", "\x7f": "5", "ok": "s3cr3t\r\nEvil: 1", "fine": "z"})

    names = ["headers.'a b'", "headers.''", "headers.'ä'", "headers.'\\x7f'", "headers.ok"]
    assert [mistake.path for mistake in wrong.value.mistakes] == names
    assert "s3cr3t" not in str(wrong.value)


def test_fitting_headers() -> None:
    """Of a table that others wrote, the headers stay that may be written again."""
    assert headers.fitting({"ok": ["1"], "ä": ["2"], "a b": ["3"], "also": "4"}) == {"ok": ["1"], "also": "4"}


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"NATS/1.0 404 No Messages\r\n\r\n", (404, "No Messages")),
        (b"NATS/1.0 503\r\n\r\n", (503, "")),
        (b"NATS/1.0  404  No  Messages \r\n\r\n", (404, "No  Messages")),
        (b"NATS/1.0 100", (100, "")),
        (b"NATS/1.0\r\nStatus: 404\r\n\r\n", None),
        (b"NATS/1.0 4040 x\r\n\r\n", None),
        (b"NATS/1.0 " + b"9" * 5000 + b"\r\n\r\n", None),
        (b"NATS/1.0 -40\r\n\r\n", None),
        (b"", None),
    ],
)
def test_a_status_is_what_the_version_line_says(block: bytes, expected: tuple[int, str] | None) -> None:
    """A header that is called Status is data."""
    assert read_status(block) == expected
    status = Status.of(block, b"")
    assert (None if status is None else (status.code, status.description)) == expected


def test_a_status_has_its_code_and_text() -> None:
    """The description is optional, and headers may follow."""
    with_text = read_status(b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 1\r\n\r\n")
    without = read_status(b"NATS/1.0 100\r\n\r\n")

    assert with_text is not None
    assert without is not None
    assert (with_text.code, with_text.text) == (409, "Message Size Exceeds MaxBytes")
    assert (without.code, without.text) == (100, "")


@pytest.mark.parametrize("block", [b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: 503\r\n\r\n", b""])
def test_ordinary_headers_are_no_status(block: bytes) -> None:
    """A message's own headers begin with the version alone."""
    assert read_status(block) is None


@pytest.mark.parametrize(
    ("name", "instructs"),
    [
        ("Nats-Msg-Id", True),
        ("nats-ttl", True),
        ("NATS-EXPECTED-LAST-SEQUENCE", True),
        ("Nats-Expected-", False),
        ("Nats-Stream", False),
        ("X-Nats-TTL", False),
        ("traceparent", False),
    ],
)
def test_names(name: str, instructs: bool) -> None:
    """A name in any case; what only looks alike is a header as any other."""
    assert instructs_server(name) == instructs


def test_a_sink_may_ask_for_headers_for_the_server() -> None:
    """By name, and for those alone."""
    options = {"servers": "nats://localhost:4222", "forwardHeaders": "Nats-TTL, nats-incr"}
    sink = SinkOptions.from_mapping(options)

    assert [name for name in ("Nats-TTL", "NATS-INCR", "Nats-Rollup", "Kind") if sink.withholds(name)] == [
        "Nats-Rollup"
    ]
