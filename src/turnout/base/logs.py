"""Log of a program: text lines for people, or one JSON object per line for programs."""

from __future__ import annotations

import logging
import sys
import threading
from datetime import UTC, datetime

from turnout.base.terminal import json_text, printable
from turnout.secrets import masked_url

_QUIET = ("py4j", "httpx", "asyncio")
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


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
        line |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info:
            line["exception"] = masked_url(self.formatException(record.exc_info))
        return json_text(line, default=str)


class TextLines(logging.Formatter):
    """Formatter of text lines, without logins and characters that control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return printable(masked_url(super().format(record)))


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
