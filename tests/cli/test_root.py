"""``turnout`` itself: its version, its help, and completion for shells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import turnout as package
from turnout.cli import app


def test_version(turnout) -> None:
    """``--version`` prints what ``turnout.__version__`` is, and nothing else is done."""
    assert turnout("--version") == (0, f"turnout {package.__version__}\n", "")


def test_completion(turnout) -> None:
    """Shells can be told how to complete commands and options."""
    _, out, _ = turnout("--help")

    assert "--install-completion" in out


def test_benchmarks_are_listed_from_anywhere(turnout) -> None:
    """The benchmarks are found without a checkout as the present folder; one that there is not is a wrong request."""
    code, out, _ = turnout("bench", "list")

    assert code == 0
    assert "route" in out.split()
    assert turnout("bench", "rout")[0] == 2


def test_every_command_is_registered() -> None:
    """A module that offers a command is named among the commands."""
    offering = {
        file.stem for file in Path(app.__file__).parent.glob("*.py") if "\ndef register(" in file.read_text("utf-8")
    }

    assert sorted(app.COMMANDS) == list(app.COMMANDS)
    assert set(app.COMMANDS) == offering


def test_no_command_waits_for_what_it_does_not_need() -> None:
    """To start the command line imports neither arrays nor the engine, of which most commands need nothing."""
    code = "import sys; from turnout.cli.app import build_app; build_app(); print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not {"numpy", "pyarrow", "pydantic", "turnout.engine", "turnout.routes"} & set(imported)
