"""The notebook of the functions for frames, run from its first cell to its last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.notebook import cells, code, plots

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Run the cells in their order, and print what each says that it prints and what it prints."""
    names: dict[str, Any] = {}
    for cell in (cell for cell in code() if cell.line not in plots()):
        sys.stdout.write(json.dumps([cell.line, cell.told, cell.run(names)]) + "\n")


@pytest.mark.heavy
def test_what_the_cells_print(tmp_path: Path) -> None:
    """In a process of its own, since the notebook has a session of its own."""
    done = subprocess.run(
        [sys.executable, "-c", "from tests.spark.test_notebook import main; main()"],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT)))},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [actual for _, _, actual in printed] == [expected for _, expected, _ in printed]
    assert sum(len(expected) for _, expected, _ in printed) >= 10


@pytest.mark.parametrize("name", ["apply_chain", "build_session", "diff", "map_subjects", "match", "register", "replay",
                                  "run", "subject_matches", "subscriptions_table", "transform_subject"])  # fmt: skip
def test_a_function_is_shown(name: str) -> None:
    """Every function of `turnout.spark` that is for frames."""
    assert any(f"ts.{name}(" in cell.text for cell in code())


def test_outputs_are_stored() -> None:
    """Whoever only reads the notebook sees what each cell prints, and the chart."""
    stored = {cell.line: cells()[cell.line]["outputs"] for cell in code()}
    printed = {
        place: "".join(text for output in outputs if output["output_type"] == "stream" for text in output["text"])
        for place, outputs in stored.items()
    }

    assert {cell.line: cell.told for cell in code()} == {place: text.splitlines() for place, text in printed.items()}
    assert plots()
    assert all(any("image/png" in output.get("data", {}) for output in stored[place]) for place in plots())
