"""Texts of others on a terminal: nothing in them controls it, reorders it or forges a line."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import unicodedata
import warnings

import pytest

from tests.cli.conftest import root_log_kept
from turnout.base.terminal import JsonLines, TextLines, json_text, logs_json, printable, printable_lines, set_up_logs

HOSTILE = [
    "\x1b]0;owned\x07",
    "\x1b[2J",
    "\x9b31m",
    "a\rb",
    "\x08",
    "\x7f",
    "\u202eabc",
    "\u2066",
    "\u200f",
    "\u061c",
    "\ud800",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_controls_the_terminal(text: str) -> None:
    """Each is shown as an escape, and a program reads the same value from JSON."""
    for shown in (printable(text), printable_lines([text]), json_text({"value": text})):
        assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in shown)
    assert json.loads(json_text({"value": text})) == {"value": text}


def test_what_harms_nobody_is_shown_as_it_is() -> None:
    """Letters of every script, emoji that are joined, tabs; line breaks where the text is a block."""
    text = "Größe\t東京 \N{FAMILY} a\u200db\nשלום"

    assert printable(text) == text
    assert printable_lines(text.split("\n")) == text
    assert printable_lines([text]) == text.replace("\n", "\\n")
    assert json_text(text).endswith('שלום"')


def test_programs_read_what_is_and_people_what_is_printable() -> None:
    """The same command, once with a pipe and once with a terminal."""
    command = [sys.executable, "-m", "turnout", "map", "a.*", "b.{{wildcard(1)}}", "a.\u202e\x9b"]
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb") as screen:
        shown = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, check=True)
        os.close(theirs)
        on_screen = os.read(screen.fileno(), 10_000).decode()
    piped = subprocess.run(command, capture_output=True, check=True).stdout.decode()

    assert shown.stderr == b""
    assert "b.\\u202e\\x9b" in on_screen
    assert not set(on_screen) & set("\u202e\x9b")
    assert "b.\u202e\x9b" in piped


def test_every_control_of_bidirectional_text_is_known() -> None:
    """All characters that Unicode gives such a class, or names a mark of a direction."""
    controls = [
        chr(point)
        for point in range(0x110000)
        if unicodedata.bidirectional(chr(point)) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    ]

    assert len(controls) == 9
    assert all(printable(char) != char for char in [*controls, "\u200e", "\u200f", "\u061c"])


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
