"""Transforms as a route's list has them, of transforms as Connect's properties have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnout.routes.line_numbers import Document
from turnout.transforms.base import PACKAGE
from turnout.transforms.config import PredicateSpec, StageSpec
from turnout.transforms.options import Option, OptionError
from turnout.transforms.registry import PREDICATE_PACKAGES, UnknownNameError, find_predicate, find_transform


def stage_of(spec: StageSpec) -> Document:
    """Return one item of ``transforms``; invalid parts stay unchanged, for ``turnout check`` to report."""
    type_ = spec.type or ""
    stage: Document = {"name": spec.alias, "type": type_.removeprefix(PACKAGE)}
    stage |= _typed(spec.options, _options_of_transform(type_))
    predicates = [_predicate(predicate) for predicate in spec.predicates]
    if predicates:
        stage["predicate"] = predicates[0] if len(predicates) == 1 else predicates
    return {**stage, "negate": True} if spec.negate else stage


def _predicate(spec: PredicateSpec) -> Document:
    type_ = spec.type or ""
    simple = type_
    for package in PREDICATE_PACKAGES:
        simple = simple.removeprefix(package)
    block = {"type": simple, **_typed(spec.options, _options_of_predicate(type_))}
    return {**block, "negate": True} if spec.negate else block


def _options_of_transform(type_: str) -> Sequence[Option]:
    try:
        return find_transform(type_).kind.options
    except UnknownNameError:
        return ()


def _options_of_predicate(type_: str) -> Sequence[Option]:
    try:
        return find_predicate(type_).options
    except UnknownNameError:
        return ()


def _typed(texts: Mapping[str, str | None], options: Sequence[Option]) -> Document:
    """Switches and numbers as YAML has them; all other options as the texts that they are."""
    kinds = {option.name: option for option in options if option.kind not in ("STRING", "LIST")}
    return {name: _value(kinds.get(name), text) for name, text in texts.items() if name != "type"}


def _value(option: Option | None, text: str | None) -> object:
    if option is None:
        return text
    try:
        return option.parse(text)
    except OptionError:
        return text
