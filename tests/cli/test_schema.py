"""``turnout schema``: what is published, and what is installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from unittest.mock import patch

import pytest
from jsonschema import Draft202012Validator

from turnout.transforms import registry

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["route", "test", "server"])
def test_what_is_published_is_what_is_made(kind, turnout) -> None:
    """The files under schema/ are what ``turnout schema`` prints: run it again where this fails."""
    published = (ROOT / "schema" / f"{kind}.schema.json").read_text(encoding="utf-8")

    code, out, _ = turnout("schema", kind)

    assert code == 0
    assert out == published
    Draft202012Validator.check_schema(json.loads(published))


def test_routes_are_the_default(turnout) -> None:
    """``turnout schema`` alone is about route files; of other kinds there is none."""
    assert turnout("schema")[1] == turnout("schema", "route")[1]
    assert turnout("schema", "rout")[0] == 2


def test_settings_of_a_server(turnout) -> None:
    """The settings of ``turnout serve``: durations with units, and no unknown names."""
    schema = Draft202012Validator(json.loads(turnout("schema", "server")[1]))

    assert schema.is_valid({"listen": "127.0.0.1:0", "interval": "2s", "retention": {"counts": 60}})
    assert [schema.is_valid(wrong) for wrong in ({"listne": "a:1"}, {"interval": "2 parsecs"})] == [False, False]


def test_options_of_plugins(turnout) -> None:
    """A transform of another package has its options in the schema that is printed where it is installed."""
    file = ROOT / "examples" / "plugin" / "upper.py"
    spec = importlib.util.spec_from_file_location("upper", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict("sys.modules", {"upper": module}):
        spec.loader.exec_module(module)
    with patch.object(registry, "_plugins", lambda: {"UpperField": module.UpperField}):
        schema = json.loads(turnout("schema")[1])

    wrong = [error.message for error in Draft202012Validator(schema["$defs"]["transform.UpperField"]).iter_errors({})]
    assert wrong == ["'field' is a required property"]
    assert schema["$defs"]["transform.UpperField"]["properties"]["field"]["description"] == "The field."
    assert "UpperField$Key" in schema["$defs"]["stage"]["properties"]["type"]["enum"]
