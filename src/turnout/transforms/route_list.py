"""A route file's list of transforms read into specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnout.errors import Mistake
from turnout.records.types import Column, Value
from turnout.transforms.java.text import is_word, trim
from turnout.transforms.options import option_text
from turnout.transforms.properties import Specs
from turnout.transforms.specs import PredicateSpec, StageSpec

_OF_THE_STAGE = ("name", "type", "predicate", "negate")


def read_route_list(
    transforms: Column, predicates: Mapping[str, Mapping[str, object]], path: str
) -> tuple[Specs, list[Mistake]]:
    """Return the specs of the list, and the mistakes of its shape; *path* is its location in the file."""
    reader = _RouteList(predicates, path)
    return reader.read(transforms), reader.mistakes


class _RouteList:
    """Reader of one list of transforms."""

    def __init__(self, predicates: Mapping[str, Mapping[str, object]], path: str) -> None:
        self.path = path
        self.mistakes: list[Mistake] = []
        self.named = predicates
        self.used: set[str] = set()

    def read(self, transforms: Column) -> Specs:
        if isinstance(transforms, (str, Mapping)) or not isinstance(transforms, Sequence):
            self.mistakes.append(Mistake(self.path, f"expected a list of transforms, found {transforms!r}"))
            return Specs()
        stages = [stage for at, item in enumerate(transforms) if (stage := self._stage(at, item))]
        unused = [
            self._predicate(name, f"predicates.{name}", predicate)
            for name, predicate in self.named.items()
            if name not in self.used
        ]
        return Specs(stages, [spec for spec in unused if spec])

    def _stage(self, at: int, item: object) -> StageSpec | None:
        path = f"{self.path}[{at}]"
        if not isinstance(item, Mapping):
            self.mistakes.append(Mistake(path, f"expected a mapping with a type, found {item!r}"))
            return None
        type_ = item.get("type")
        label = str(item.get("name") or f"{at + 1}-{str(type_).rpartition('.')[2]}")
        options = {str(n): option_text(v) for n, v in item.items() if n not in _OF_THE_STAGE}
        spec = StageSpec(label, f"{path}.type", f"{path}.", option_text(type_), options)
        predicate = item.get("predicate")
        several = predicate if isinstance(predicate, list) else [] if predicate is None else [predicate]
        for number, entry in enumerate(several):
            where = f"{path}.predicate[{number}]" if isinstance(predicate, list) else f"{path}.predicate"
            guard = self._guard(label, where, entry)
            if guard:
                spec.predicates.append(guard)
        spec.negate = self._boolean(f"{path}.negate", item.get("negate", False))
        if "negate" in item and not several:
            self.mistakes.append(Mistake(f"{path}.negate", "means nothing without a predicate"))
        return spec

    def _guard(self, label: str, path: str, reference: object) -> PredicateSpec | None:
        if isinstance(reference, str):
            if reference in self.named:
                self.used.add(reference)
                return self._predicate(reference, f"predicates.{reference}", self.named[reference])
            names = ", ".join(self.named) or "none"
            self.mistakes.append(Mistake(path, f"no predicate is named {reference!r}; there are {names}"))
            return None
        return self._predicate(label, path, reference)

    def _predicate(self, alias: str, path: str, definition: object) -> PredicateSpec | None:
        if not isinstance(definition, Mapping):
            self.mistakes.append(Mistake(path, f"expected a mapping with a type, found {definition!r}"))
            return None
        type_ = definition.get("type", "Condition" if "when" in definition else None)
        options = {str(n): option_text(v) for n, v in definition.items() if n not in ("type", "negate")}
        negate = self._boolean(f"{path}.negate", definition.get("negate", False))
        return PredicateSpec(alias, f"{path}.type", f"{path}.", option_text(type_), options, negate=negate)

    def _boolean(self, path: str, value: Value) -> bool:
        text = trim(str(value)) if isinstance(value, bool | str) else ""
        if is_word(text, "true") or is_word(text, "false"):
            return is_word(text, "true")
        self.mistakes.append(Mistake(path, f"expected true or false, found {value!r}"))
        return False
