"""Forms of requests: strict types, and paths of ids."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

import turnout.server.rest
from turnout.server.rest.models import RequestForm, _SubscriptionConvertor

_WRONG: dict[str, tuple[object, ...]] = {"boolean": (0, "true"), "integer": (True, "1"), "number": (True, "1")}
"""Values that are not of a JSON type, and that a lax reading would convert."""


def _forms() -> list[type[RequestForm]]:
    for module in pkgutil.iter_modules(turnout.server.rest.__path__):
        importlib.import_module(f"turnout.server.rest.{module.name}")
    return [form for form in RequestForm.__subclasses__() if form.__module__.startswith("turnout.server.rest.")]


def _fields() -> Iterator[tuple[type[RequestForm], str, object]]:
    """Yield every field with a value that none of its types has."""
    for form in _forms():
        for name, schema in form.model_json_schema(by_alias=True)["properties"].items():
            types = {kind.get("type") for kind in (schema, *schema.get("anyOf", ()))}
            for kind in types & _WRONG.keys():
                yield from (
                    (form, name, value) for value in _WRONG[kind] if not (isinstance(value, str) and "string" in types)
                )


def test_no_value_is_converted() -> None:
    """A number is no boolean, and a text or a boolean is no number, as the description says."""
    fields = list(_fields())
    assert {"keep", "enabled", "dry_run"} <= {name for _, name, _ in fields}
    for form, name, value in fields:
        with pytest.raises(ValidationError) as refused:
            form.model_validate({name: value})
        assert any(error["loc"][:1] == (name,) for error in refused.value.errors()), (form, name, value)


@pytest.mark.parametrize(
    ("path", "is_id"), [("orders", True), ("a/b", True), ("conditions/validate", False), ("orders/history", False)]
)
def test_ids_in_paths(path: str, *, is_id: bool) -> None:
    """An id may have slashes, and is not the path of another operation."""
    assert bool(re.fullmatch(_SubscriptionConvertor.regex, path)) is is_id
