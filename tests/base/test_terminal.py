"""Texts of others on a terminal: nothing in them controls it, reorders it or forges a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata

import pytest

from turnout.base.terminal import json_text, printable, printable_lines

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
