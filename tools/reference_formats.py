"""The table of formats as Markdown, made of the registry of codecs. ``python -m tools.reference_formats`` prints it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from turnout.base.options import Option
from turnout.codecs.format import BUILTIN

HEAD = "| `format` | values are | settings |"


def table() -> str:
    """Every format of turnout's own with its settings."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (HEAD, "| --- | --- | --- |")
    for name, kind in BUILTIN.items():
        yield f"| `{name}` | {kind.summary} | {'; '.join(map(_setting, kind.settings or ()))} |"


def _setting(setting: Option) -> str:
    text = str(setting.default).lower() if isinstance(setting.default, bool) else setting.default
    default = "" if setting.default is None else f" (`{text}`)"
    return f"`{setting.name}`{default}: {setting.doc}"


if __name__ == "__main__":
    sys.stdout.write(table())
