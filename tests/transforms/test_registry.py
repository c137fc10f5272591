"""A transform of one's own, as docs/transforms.md has it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from unittest.mock import patch

from turnout.records import Field, Record, Schema
from turnout.transforms import Chain, registry

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin" / "upper.py"
CARRIER = Schema("struct", fields=(Field("carrier", Schema("string", optional=True)),))


def test_the_plugin_of_the_documentation() -> None:
    """The example in examples/plugin runs as it stands, on typed and on schemaless values; nulls stay."""
    spec = importlib.util.spec_from_file_location("upper", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {"upper": module}):
        spec.loader.exec_module(module)
    with patch.object(registry, "_plugins", lambda: {"UpperField": module.UpperField}):
        chain = Chain.from_route([{"type": "UpperField$Value", "field": "carrier"}])

    typed = chain.apply(Record("t", {"carrier": "aa"}, value_schema=CARRIER))
    schemaless = [chain.apply(Record("t", value)) for value in ({"carrier": "aa", "n": 1}, {"carrier": None}, {"n": 1})]

    assert typed is not None
    assert (typed.value, typed.value_schema) == ({"carrier": "AA"}, CARRIER)
    assert [record and record.value for record in schemaless] == [
        {"carrier": "AA", "n": 1},
        {"carrier": None},
        {"n": 1},
    ]


def test_the_documentation_shows_the_example() -> None:
    """docs/transforms.md has the class as the file has it."""
    shown = (EXAMPLE.parents[2] / "docs" / "transforms.md").read_text(encoding="utf-8")
    code = EXAMPLE.read_text(encoding="utf-8")

    assert code[code.index("@dataclass") :].strip() in shown
