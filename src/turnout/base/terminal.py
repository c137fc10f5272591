"""Text for people and programs: on a terminal, in a log, and counts with their nouns."""

from __future__ import annotations

import difflib
import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import Final

from turnout.secrets import masked_url


def plural(count: int, noun: str) -> str:
    """Return *count* with the noun, in the plural unless it is one.

    >>> plural(1, "mapping"), plural(1_200, "mapping")
    ('1 mapping', '1,200 mappings')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_names(names: Sequence[str], most: int = 5) -> str:
    """Return the first of some names, and how many more there are.

    >>> first_names(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Unicode's Bidi_Control: U+202E reverses the text behind it, also that of the next line."""

_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}\u2028\u2029\ud800-\udfff]")
"""Controls of both ranges (a terminal takes U+009B for ESC [), line separators, and surrogates, which UTF-8 lacks."""

_UNSAFE_IN_LINE = re.compile(f"\n|{_UNSAFE.pattern}")


def printable(text: str) -> str:
    r"""Escape the characters that control a terminal; line breaks and tabs stay.

    >>> printable("\x1b]0;title\x07 of \u202eabc\n")
    '\\x1b]0;title\\x07 of \\u202eabc\n'
    """
    return _UNSAFE.sub(_escaped, text)


def printable_lines(lines: Iterable[str]) -> str:
    r"""Join lines; a line break within one of them is escaped, so that no value can forge a line.

    >>> printable_lines(["topic a", "reason: b\ntopic c"])
    'topic a\nreason: b\\ntopic c'
    """
    return "\n".join(_UNSAFE_IN_LINE.sub(_escaped, line) for line in lines)


def json_text(value: object, *, indent: int | None = None, default: Callable[[object], object] | None = None) -> str:
    r"""Return JSON with readable letters, in which the same characters are escaped.

    >>> json_text({"name": "Größe\x9b31m"})
    '{"name": "Größe\\u009b31m"}'
    """
    return escaped_json(json.dumps(value, indent=indent, default=default, ensure_ascii=False))


def escaped_json(text: str) -> str:
    """Escape the same characters in JSON; outside of its strings there are none."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable_on_terminal(text: str) -> str:
    """Return a text as it is for a program that reads standard output, and printable on a terminal."""
    return printable(text) if sys.stdout.isatty() else text


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


_MAX_CHARACTERS: Final = 64
_MOST_NAMES: Final = 500
_MOST_GUESSES: Final = 50


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name most similar to *word*, ignoring case; None if no name is similar.

    Names with a single typing error precede all others. Words of more than 64 characters get no guess, and only the
    first 500 names are compared: both may be untrusted.

    >>> nearest("exlude", ["include", "exclude", "renames"])
    'exclude'
    """
    if len(word) > _MAX_CHARACTERS:
        return None
    # A name that belongs somewhere else is not its own correction.
    names = (name for name in islice(known, _MOST_NAMES) if name != word and len(name) <= 2 * _MAX_CHARACTERS)
    lowered = {name.lower(): name for name in names}
    slips = [name for name in lowered if _one_slip(word.lower(), name)]
    guesses = slips or difflib.get_close_matches(word.lower(), list(lowered), n=1, cutoff=cutoff)
    return lowered[guesses[0]] if guesses else None


def _one_slip(word: str, name: str) -> bool:
    """Return True if the words differ by one letter added, missing or replaced, or by two neighbours swapped."""
    begin = _common(word, name)
    word, name = word[begin:], name[begin:]
    end = _common(word[::-1], name[::-1])
    word, name = word[: len(word) - end], name[: len(name) - end]
    return max(len(word), len(name)) <= 1 or (len(word) == 2 and word == name[::-1])


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean "x"?`` where something near is known, else nothing.

    >>> did_you_mean("strem", ["stream", "subject"]), did_you_mean("zebra", ["stream", "subject"])
    ('; did you mean "stream"?', '')
    """
    guess = nearest(word, known)
    return f'; did you mean "{guess}"?' if guess else ""


def guesses(names: Iterable[str], known: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each unknown name with the text of `did_you_mean`; with "" after the first 50 names.

    >>> list(guesses(["subjct"], ["stream", "subject"]))
    [('subjct', '; did you mean "subject"?')]
    """
    known = tuple(known)
    for index, name in enumerate(names):
        yield name, did_you_mean(name, known) if index < _MOST_GUESSES else ""


_QUIET = ("py4j", "httpx", "asyncio")
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


trace_ids: Final = ContextVar[Mapping[str, str]]("trace_ids", default=MappingProxyType({}))
"""``trace_id`` and ``span_id`` of the span that is under way; empty without one."""


class JsonLines(logging.Formatter):
    """Formatter of JSON lines: time, level, logger, message, values of ``extra``, and the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": masked_url(record.getMessage()),
        }
        line |= {**trace_ids.get(), **{name: value for name, value in vars(record).items() if name not in _OWN}}
        if record.exc_info:
            line["exception"] = masked_url(self.formatException(record.exc_info))
        return json_text(line, default=str)


class TextLines(logging.Formatter):
    """Formatter of text lines, without logins and characters that control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        own = {name: vars(record)[name] for name in ("trace_id", "span_id") if name in vars(record)}
        ids = "".join(f" {name}={text}" for name, text in (own or trace_ids.get()).items())
        return printable(masked_url(super().format(record) + ids))


def set_up_logs(kind: str, level: str) -> None:
    """Send every log of this process to standard error, with warnings of Python's and the ends of threads.

    Args:
        kind: ``text`` or ``json``.
        level: the least that is said.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if kind == "json" else TextLines("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    if kind == "json":
        logging.captureWarnings(True)
        threading.excepthook = _log_end_of_thread


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    """Log an exception that ends a thread: Python's own hook prints a trace, which is no JSON."""
    if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
        name = "" if ended.thread is None else ended.thread.name
        failure = (ended.exc_type, ended.exc_value, ended.exc_traceback)
        logging.getLogger("turnout").error("the thread %s has ended by an exception", name, exc_info=failure)


def logs_json() -> bool:
    """Return True if this process's log is JSON lines."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.root.handlers)
