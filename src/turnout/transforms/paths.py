"""Paths into nested fields (KIP-821)."""

from __future__ import annotations

__all__ = ["PathError", "parse_path"]


class PathError(ValueError):
    """Raised when a backtick in a path is never closed."""


def parse_path(text: str, version: str = "V2") -> tuple[str, ...]:
    """The steps of a field path; V1 takes the whole text as one name.

    A step that begins with a backtick runs to the first backtick that is followed by a dot or ends the text, so
    that names may have dots in them. A backslash before such a backtick makes it an ordinary character.

    Raises:
        PathError: when the closing backtick is missing.
    """
    if version.upper() == "V1":
        return (text,)
    if not text:
        return ()
    steps: list[str] = []
    at = 0
    while at <= len(text):
        if text.startswith("`", at):
            step, at = _quoted(text, at)
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            step, at = text[at:end], end + 1
        steps.append(step)
    return tuple(steps)


def _quoted(text: str, opened: int) -> tuple[str, int]:
    """The step that opens with a backtick at *opened*, and where the next step starts."""
    step: list[str] = []
    at = opened + 1
    while at < len(text):
        closes = text[at] == "`" and (at + 1 == len(text) or text[at + 1] == ".")
        if not closes:
            step.append(text[at])
            at += 1
            continue
        escaped = at > opened + 1 and text[at - 1] == "\\"
        if not escaped:
            return "".join(step), at + 2
        if at + 1 == len(text):
            break
        step[-1] = "`"
        at += 1
    raise PathError(f"the backtick opened at position {opened} of {text!r} is never closed")
