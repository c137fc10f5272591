"""``turnout`` itself: its version, its help, and completion for shells."""

from __future__ import annotations

import turnout as package


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
