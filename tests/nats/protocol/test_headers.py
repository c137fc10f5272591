"""Header blocks and status lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import ConfigError
from turnout.nats.protocol import headers
from turnout.nats.protocol.status import Status, read_status

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
