"""A transform of one's own, as docs/transforms.md has it."""

from __future__ import annotations

import importlib.util
import subprocess
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


def test_each_name_is_that_of_its_class_and_kafkas_are_kafkas() -> None:
    """Names say which module is imported, and which transforms a Connect worker has."""
    assert {name: kind.__name__ for name, kind in registry.TRANSFORMS.items()} == {n: n for n in registry.TRANSFORMS}
    assert {name for name, kind in registry.TRANSFORMS.items() if kind.kafka} == set(registry.RELEASED)
    assert {name: kind.__name__ for name, kind in registry.PREDICATES.items()} == {n: n for n in registry.PREDICATES}


def test_a_chain_imports_only_its_transforms() -> None:
    """Modules of transforms that a chain does not have cost no start-up time."""
    code = (
        "import sys; from turnout.transforms import Chain; "
        "Chain.from_route([{'type': 'MaskField$Value', 'fields': ['a']}]); "
        "names = 'kafka.mask_field', 'debezium.event_router'; "
        "print(*(f'turnout.transforms.{name}' in sys.modules for name in names))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "False"]
