"""Log lines with text of records."""

from __future__ import annotations

import logging

import pytest

from turnout.base.logs import JsonLines, TextLines


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
def test_what_is_logged_of_a_record_does_not_control_a_terminal(formatter: logging.Formatter) -> None:
    """A topic with an escape, or with a character that reverses text, is shown with escapes."""
    record = logging.LogRecord("turnout.server", logging.ERROR, "f", 1, "%s", ("a\x1b]0;b\x07\u202e\x9b",), None)

    line = formatter.format(record)

    assert not set(line) & set("\x1b\x07\u202e\x9b")
    assert "]0;b" in line
