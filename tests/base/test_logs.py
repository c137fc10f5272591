"""Log lines with text of records."""

from __future__ import annotations

import json
import logging
import threading
import warnings

import pytest

from tests.cli.conftest import root_log_kept
from turnout.base.logs import JsonLines, TextLines, logs_json, set_up_logs


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
def test_what_is_logged_of_a_record_does_not_control_a_terminal(formatter: logging.Formatter) -> None:
    """A topic with an escape, or with a character that reverses text, is shown with escapes."""
    record = logging.LogRecord("turnout.server", logging.ERROR, "f", 1, "%s", ("a\x1b]0;b\x07\u202e\x9b",), None)

    line = formatter.format(record)

    assert not set(line) & set("\x1b\x07\u202e\x9b")
    assert "]0;b" in line


def test_threads_and_warnings_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    """An exception that ends a thread has its trace in the line; a warning of Python's is a line, too."""
    with root_log_kept():
        set_up_logs("json", "info")
        assert logs_json()
        thread = threading.Thread(target=lambda: 1 / 0, name="worker")
        thread.start()
        thread.join()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    ended, warned = map(json.loads, capsys.readouterr().err.splitlines())

    assert ended["message"] == "the thread worker has ended by an exception"
    assert "ZeroDivisionError" in ended["exception"]
    assert (warned["level"], warned["logger"]) == ("warning", "py.warnings")
    assert not logs_json()
