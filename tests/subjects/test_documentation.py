"""The examples of docs/subjects.md do what the page says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from turnout.cli.app import build_app

PAGE = (Path(__file__).parents[2] / "docs" / "subjects.md").read_text(encoding="utf-8")


def test_each_line_of_the_first_example_gives_what_stands_behind_it() -> None:
    """Expression, then its value in a comment."""
    block = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    checked = 0
    for line in block[1].splitlines():
        code, _, printed = line.partition("  # ")
        if printed:
            assert eval(code, names) == ast.literal_eval(printed.strip())
            checked += 1
        else:
            exec(line, names)

    assert checked == 4


def test_the_first_command_prints_what_the_page_prints() -> None:
    """Copied from a terminal once, compared ever since."""
    block = re.search(r"```text\n\$ turnout map (.*?)\n(.*?)\n\n", PAGE, re.DOTALL)
    assert block is not None
    words = [word.strip("'") for word in block[1].split(" ")]
    done = CliRunner().invoke(build_app(), ["map", *words])

    assert done.stdout.strip() == block[2]
