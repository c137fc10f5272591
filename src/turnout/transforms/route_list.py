"""A route file's list of transforms read into specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnout.errors import Mistake
from turnout.transforms.options import option_text
from turnout.transforms.properties import Specs
from turnout.transforms.specs import PredicateSpec, StageSpec

__all__ = ["read_route_list"]

_OF_THE_STAGE = ("name", "type", "predicate", "negate")


def read_route_list(
    transforms: Sequence[Any], predicates: Mapping[str, Mapping[str, Any]], path: str
) -> tuple[Specs, list[Mistake]]:
    """The specs of the list, and what is wrong with its shape; *path* is its place in the file."""
    reader = _RouteList(predicates, path)
    return reader.read(transforms), reader.mistakes


class _RouteList:
    """One reading of a list."""

    def __init__(self, predicates: Mapping[str, Mapping[str, Any]], path: str) -> None:
        self.path = path
        self.mistakes: list[Mistake] = []
        self.named = predicates
        self.used: set[str] = set()

    def read(self, transforms: Sequence[Any]) -> Specs:
        if isinstance(transforms, (str, Mapping)) or not isinstance(transforms, Sequence):
            self.mistakes.append(Mistake(self.path, f"expected a list of transforms, found {transforms!r}"))
            return Specs()
        stages = [found for at, item in enumerate(transforms) if (found := self._stage(at, item))]
        unused = [
            self._predicate(name, f"predicates.{name}", given)
            for name, given in self.named.items()
            if name not in self.used
        ]
        return Specs(stages, [spec for spec in unused if spec])

    def _stage(self, at: int, item: Any) -> StageSpec | None:
        place = f"{self.path}[{at}]"
        if not isinstance(item, Mapping):
            self.mistakes.append(Mistake(place, f"expected a mapping with a type, found {item!r}"))
            return None
        type_ = item.get("type")
        label = str(item.get("name") or f"{at + 1}-{str(type_).rpartition('.')[2]}")
        options = {str(n): option_text(v) for n, v in item.items() if n not in _OF_THE_STAGE}
        spec = StageSpec(label, f"{place}.type", f"{place}.", option_text(type_), options)
        wanted = item.get("predicate")
        several = wanted if isinstance(wanted, list) else [] if wanted is None else [wanted]
        for number, one in enumerate(several):
            where = f"{place}.predicate[{number}]" if isinstance(wanted, list) else f"{place}.predicate"
            guard = self._guard(label, where, one)
            if guard:
                spec.predicates.append(guard)
        spec.negate = self._boolean(f"{place}.negate", item.get("negate", False))
        if "negate" in item and not several:
            self.mistakes.append(Mistake(f"{place}.negate", "means nothing without a predicate"))
        return spec

    def _guard(self, label: str, place: str, given: Any) -> PredicateSpec | None:
        if isinstance(given, str):
            if given in self.named:
                self.used.add(given)
                return self._predicate(given, f"predicates.{given}", self.named[given])
            known = ", ".join(self.named) or "none"
            self.mistakes.append(Mistake(place, f"no predicate is named {given!r}; there are {known}"))
            return None
        return self._predicate(label, place, given)

    def _predicate(self, alias: str, place: str, given: Any) -> PredicateSpec | None:
        if not isinstance(given, Mapping):
            self.mistakes.append(Mistake(place, f"expected a mapping with a type, found {given!r}"))
            return None
        type_ = given.get("type", "Condition" if "when" in given else None)
        options = {str(n): option_text(v) for n, v in given.items() if n not in ("type", "negate")}
        negate = self._boolean(f"{place}.negate", given.get("negate", False))
        return PredicateSpec(alias, f"{place}.type", f"{place}.", option_text(type_), options, negate=negate)

    def _boolean(self, place: str, given: Any) -> bool:
        if isinstance(given, bool) or (isinstance(given, str) and given.strip().lower() in ("true", "false")):
            return str(given).strip().lower() == "true"
        self.mistakes.append(Mistake(place, f"expected true or false, found {given!r}"))
        return False
