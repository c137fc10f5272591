"""Connector properties (``transforms``, ``transforms.x.type``, ``predicates`` …) read into specs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from turnout.records.types import DynamicValue
from turnout.transforms.base import PACKAGE
from turnout.transforms.checks import java_regex, names_or_none
from turnout.transforms.java.text import is_word, split_list, trim
from turnout.transforms.kip585_drafts import condition_spec, if_specs, inline_spec, parsed_switch, without_predicates
from turnout.transforms.options import OptionError, RawOptions, option_text
from turnout.transforms.specs import PredicateSpec, StageSpec


@dataclass(slots=True)
class Specs:
    """Parsed stages in order, and listed predicates that no stage uses."""

    stages: list[StageSpec] = field(default_factory=list)
    unused: list[PredicateSpec] = field(default_factory=list)


def read_properties(config: RawOptions, *, strict: bool) -> tuple[Specs, list[OptionError]]:
    """Return the specs of a connector's properties, and the mistakes of the lists of aliases."""
    reader = _Properties(config, strict=strict)
    return reader.read(), reader.mistakes


def connector_properties(config: Mapping[str, DynamicValue]) -> dict[str, str | None]:
    """The properties of a connector, also of its JSON form ``{"name": …, "config": {…}}``, all values as text."""
    inner = config.get("config")
    properties = inner if isinstance(inner, Mapping) else config
    return {str(name): option_text(value) for name, value in properties.items()}


def sub_options(config: RawOptions, prefix: str) -> dict[str, str | None]:
    """Return the properties below *prefix*, without it."""
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


def sink_mistakes(config: RawOptions) -> Iterator[OptionError]:
    """Yield the mistakes in the topics of a sink connector and of its dead letters."""
    topics = split_list(config.get("topics") or "")
    pattern = trim(config.get("topics.regex") or "")
    if topics and (problem := names_or_none(topics)):
        yield OptionError("topics", f"{problem}, found {config['topics']!r}")
    if bool(topics) == bool(pattern):
        present = "both" if topics else "neither"
        yield OptionError("topics", f"expected either topics or topics.regex, found {present}")
    dead = trim(config.get("errors.deadletterqueue.topic.name") or "")
    if dead and dead in topics:
        yield OptionError("errors.deadletterqueue.topic.name", f"the sink consumes {dead!r} itself")
    if pattern and java_regex(pattern):
        yield OptionError("topics.regex", f"{java_regex(pattern)}, found {pattern!r}")
    elif dead and pattern and re.fullmatch(pattern, dead):
        yield OptionError("errors.deadletterqueue.topic.name", f"topics.regex matches {dead!r}")


class _Properties:
    """Reader of one connector's properties."""

    def __init__(self, config: RawOptions, *, strict: bool) -> None:
        self.config = config
        self.strict = strict
        self.mistakes: list[OptionError] = []
        self.used: set[str] = set()

    def read(self) -> Specs:
        aliases = self._aliases("transforms")
        self.predicates = self._aliases("predicates")
        stages = [spec for alias in aliases for spec in self._stage(alias)]
        unused = [self._predicate(alias) for alias in self.predicates if alias not in self.used]
        return Specs(stages, unused)

    def _aliases(self, option: str) -> list[str]:
        text = self.config.get(option, "")
        if text is None:
            self.mistakes.append(OptionError(option, "expected a list of aliases, found null"))
            return []
        aliases = split_list(text)
        if "" in aliases:
            self.mistakes.append(OptionError(option, f"expected no empty alias, found {text!r}"))
            aliases = [alias for alias in aliases if alias]
        twice = sorted({alias for alias in aliases if aliases.count(alias) > 1})
        if twice:
            self.mistakes.append(OptionError(option, f"expected each alias once, found {text!r}"))
        return list(dict.fromkeys(aliases))

    def _stage(self, alias: str) -> list[StageSpec]:
        prefix = f"transforms.{alias}."
        options = sub_options(self.config, prefix)
        type_ = options.get("type")
        if not self.strict and trim(type_ or "") == "If":
            return if_specs(alias, prefix, options, self.mistakes)
        spec = StageSpec(alias, prefix + "type", prefix, type_ and trim(type_), options)
        if not self.strict:
            spec.predicates += inline_spec(alias, prefix, options, self.mistakes)
            is_filter = spec.type in ("Filter", PACKAGE + "Filter")
            spec.predicates += condition_spec(alias, prefix, options) if is_filter else ()
            spec.options = without_predicates(options, is_filter=is_filter)
        self._guards(spec)
        return [spec]

    def _guards(self, spec: StageSpec) -> None:
        named = spec.options.pop("predicate", None)
        inline = bool(spec.predicates)
        if named is not None:
            aliases = [named] if self.strict else split_list(named)
            spec.predicates += [predicate for alias in aliases if (predicate := self._named(spec, alias))]
        if "negate" not in spec.options:
            return
        text = spec.options.pop("negate") or ""
        if named is None and not inline:
            problem = f"means nothing without {spec.prefix}predicate, found {text!r}"
            self.mistakes.append(OptionError(spec.prefix + "negate", problem))
        else:
            negate = parsed_switch(spec.prefix + "negate", text, self.mistakes)
            # Kafka validates the trimmed text but reads the untrimmed: " true " is false there.
            spec.negate = is_word(text, "true") if self.strict else negate

    def _named(self, spec: StageSpec, alias: str) -> PredicateSpec | None:
        if alias in self.predicates:
            self.used.add(alias)
            return self._predicate(alias)
        listed = ", ".join(self.predicates) or "none"
        problem = f"no predicate {alias!r} is listed in 'predicates'; listed are {listed}"
        self.mistakes.append(OptionError(spec.prefix + "predicate", problem, "task_start"))
        return None

    def _predicate(self, alias: str) -> PredicateSpec:
        prefix = f"predicates.{alias}."
        options = sub_options(self.config, prefix)
        type_ = options.get("type")
        return PredicateSpec(alias, prefix + "type", prefix, type_ and trim(type_), options)
