"""Public names of the package."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import turnout.nats.jetstream


def test_all_is_what_is_imported() -> None:
    """Every public name is in __all__, in order, and there is no other."""
    public = {
        name for name, value in vars(turnout.nats.jetstream).items() if not name.startswith("_") and callable(value)
    }

    assert set(turnout.nats.jetstream.__all__) == public
    assert sorted(turnout.nats.jetstream.__all__) == turnout.nats.jetstream.__all__


def test_every_public_thing_has_a_docstring() -> None:
    """Each public class and each of its public methods says what it gives."""
    for name in turnout.nats.jetstream.__all__:
        value = getattr(turnout.nats.jetstream, name)
        assert inspect.getdoc(value), name
        for method, function in vars(value).items():
            if inspect.isfunction(function) and not method.startswith("_"):
                assert inspect.getdoc(function), f"{name}.{method}"


def test_the_docs_name_every_module() -> None:
    """The table of modules in the docs is whole."""
    folder = Path(turnout.nats.jetstream.__file__).parent
    text = Path(__file__).parents[3].joinpath("docs", "jetstream.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+)`", text[text.index("## Modules") : text.index("## Subscribing")]))
    helpers = {"api", "_codec", "_mailbox", "__init__"}

    assert {path.stem for path in folder.glob("*.py")} - helpers == named & {p.stem for p in folder.glob("*.py")}
