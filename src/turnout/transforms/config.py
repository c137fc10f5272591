"""Configuration of chains: connector properties, lists of route files, error policies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

from turnout.base.terminal import did_you_mean
from turnout.errors import Mistake
from turnout.records.types import Column, DynamicValue, Value
from turnout.transforms.base import PACKAGE
from turnout.transforms.java.values import is_word, split_list, trim
from turnout.transforms.options import (
    BOOLEAN,
    LONG,
    SHORT,
    STRING,
    Option,
    OptionError,
    Options,
    RawOptions,
    java_regex,
    names_or_none,
    one_of,
    option_text,
)


@dataclass(slots=True)
class PredicateSpec:
    """A predicate to be built.

    Attributes:
        type_path: the property that names its class.
        prefix: prefix of its option names.
        type: the class; None if the property is missing.
        negate: whether its answer is turned around.
    """

    alias: str
    type_path: str
    prefix: str
    type: str | None
    options: dict[str, str | None]
    negate: bool = False


@dataclass(slots=True)
class StageSpec:
    """A stage to be built: a transform, and the predicates that all have to hold."""

    alias: str
    type_path: str
    prefix: str
    type: str | None
    options: dict[str, str | None]
    predicates: list[PredicateSpec] = field(default_factory=list)
    negate: bool = False


_RENAMED = {"regex": "pattern"}
"""``TopicMatches`` of the first draft calls its pattern ``regex``."""


def _below(options: RawOptions, prefix: str) -> dict[str, str | None]:
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _renamed(options: dict[str, str | None]) -> dict[str, str | None]:
    return {_RENAMED.get(name, name): value for name, value in options.items()}


def parsed_switch(name: str, text: str | None, mistakes: list[OptionError]) -> bool:
    """Parse a switch; other texts add a mistake and count as false."""
    try:
        return bool(Option(name, BOOLEAN, "").parse(text or ""))
    except OptionError as mistake:
        mistakes.append(mistake)
        return False


def inline_spec(alias: str, prefix: str, options: RawOptions, mistakes: list[OptionError]) -> list[PredicateSpec]:
    """Return the predicate of the ``?`` properties of one transform, if it has any."""
    inline = _below(options, "?")
    if not inline:
        return []
    type_ = inline.pop("type", None)
    negate = "negate" in inline and parsed_switch(f"{prefix}?negate", inline.pop("negate"), mistakes)
    return [
        PredicateSpec(alias, f"{prefix}?type", f"{prefix}?", type_ and trim(type_), _renamed(inline), negate=negate)
    ]


def condition_spec(alias: str, prefix: str, options: RawOptions) -> list[PredicateSpec]:
    """Return the predicate of a draft Filter's ``condition``, if it has one."""
    if "condition" not in options:
        return []
    type_ = options["condition"]
    path = f"{prefix}condition"
    settings = _renamed(_below(options, "condition."))
    return [PredicateSpec(alias, path, f"{path}.", type_ and trim(type_), settings)]


def without_predicates(options: RawOptions, *, is_filter: bool) -> dict[str, str | None]:
    """Return a transform's options without the ones that `inline_spec` and, of a Filter, `condition_spec` read."""
    draft = is_filter and "condition" in options
    return {
        name: value
        for name, value in options.items()
        if not name.startswith("?") and not (draft and (name == "condition" or name.startswith("condition.")))
    }


def if_specs(alias: str, prefix: str, options: RawOptions, mistakes: list[OptionError]) -> list[StageSpec]:
    """Return the stages of a draft's ``If``: each transform of ``then``, guarded by the condition of ``if``."""
    aliases = _then_aliases(prefix, options, mistakes)
    own_names = ["type", "then", *(f"then.{name}.type" for name in aliases), "if.type"]
    read = ("if.", *(f"then.{name}." for name in aliases))
    mistakes += _unread(prefix, options, own_names, read)
    guard = _if_predicate(alias, f"{prefix}if.", _below(options, "if."), mistakes)
    stages = []
    for name in aliases:
        below = _below(options, f"then.{name}.")
        path = f"{prefix}then.{name}."
        type_ = below.get("type")
        spec = StageSpec(f"{alias}.{name}", f"{path}type", path, type_ and trim(type_), below, [guard])
        stages.append(spec)
    return stages


def _then_aliases(prefix: str, options: RawOptions, mistakes: list[OptionError]) -> list[str]:
    """Return the names that ``then`` lists, each once."""
    text = options.get("then")
    aliases = split_list(text or "")
    if text is None or not aliases:
        mistakes.append(OptionError(f"{prefix}then", "is missing: expected the names of transforms, as in a,b"))
    elif "" in aliases or len(set(aliases)) < len(aliases):
        problem = f"expected the names of transforms, none of them empty and each once, found {text!r}"
        mistakes.append(OptionError(f"{prefix}then", problem))
    return [name for name in dict.fromkeys(aliases) if name]


def _unread(prefix: str, options: RawOptions, names: Sequence[str], read: tuple[str, ...]) -> Iterator[OptionError]:
    """Yield a mistake for each option that neither is *names* nor begins with what is *read*."""
    for name in options:
        if name not in names and not name.startswith(read):
            listed = ", ".join(names)
            problem = f"unknown option of If{did_you_mean(name, names)} (known here: {listed}, and options of these)"
            yield OptionError(prefix + name, problem)


def _if_predicate(alias: str, prefix: str, options: RawOptions, mistakes: list[OptionError]) -> PredicateSpec:
    type_ = trim(options.get("type") or "") or None
    if type_ != "Not":
        return PredicateSpec(alias, f"{prefix}type", prefix, type_, _renamed(dict(options)))
    operand = trim(options.get("operand") or "")
    if not operand:
        mistakes.append(OptionError(f"{prefix}operand", "is missing: expected the name of the predicate to negate"))
    path = f"operand.{operand}."
    mistakes += _unread(prefix, options, ["type", "operand", f"{path}type"], (path,))
    inner = _if_predicate(alias, prefix + path, _below(options, path), mistakes)
    inner.negate = not inner.negate
    return inner


_REPLICATION = 3
"""Connect's default replication factor of a dead letter topic."""


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """Handling of failures.

    Attributes:
        tolerance: ``none`` stops the run at the first failure, ``all`` sends the record to the dead letters.
        log: whether failures are logged with stage, class, message and place; `log_messages` adds key and value.
        retry_timeout: read and without effect, as is `retry_delay_max`: see `notes`.
        failed_predicates: ``fail``: a failing predicate is a failure of its stage, as in released Kafka;
            ``not-matched``: the stage is left out and the failure logged, whatever ``negate`` says; a Filter filters
            the record (KIP-585's draft).
        dead_letter_topic: topic of failed records, empty for none.
        bad_headers: whether a header that a sink cannot carry makes its record fail, or is left out and counted.

    >>> from turnout.transforms import Chain
    >>> properties = {"topics": "orders", "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}
    >>> Chain.from_config(properties, sink=True).errors == ErrorPolicy(tolerance="all", dead_letter_topic="dead")
    True
    """

    tolerance: Literal["none", "all"] = "none"
    log: bool = False
    log_messages: bool = False
    retry_timeout: int = 0
    retry_delay_max: int = 60000
    dead_letter_topic: str = ""
    dead_letter_replication: int = _REPLICATION
    dead_letter_headers: bool = False
    failed_predicates: str = "fail"
    bad_headers: Literal["deadLetter", "drop"] = "deadLetter"

    @classmethod
    def from_options(cls, options: Options) -> Self:
        """Build one from the parsed ``errors.*`` properties."""
        return cls(**{field: options[option.name] for field, option in zip(_FIELDS, OPTIONS, strict=True)})

    def notes(self) -> tuple[str, ...]:
        """Settings without effect here, one sentence each."""
        messages: list[str] = []
        if self.retry_timeout != 0:
            messages.append(
                f"errors.retry.timeout={self.retry_timeout} has no effect: Connect retries only what fails for a "
                "passing reason, and no transform, predicate or converter here does; a sink that cannot be reached "
                "fails the micro-batch, which is done again from the checkpoint"
            )
        if self.log_messages and not self.log:
            messages.append("errors.log.include.messages=true has no effect without errors.log.enable=true")
        if self.dead_letter_replication != _REPLICATION:
            messages.append(
                f"errors.deadletterqueue.topic.replication.factor={self.dead_letter_replication} has no effect: "
                "the dead letter topic is not created here"
            )
        return tuple(messages)


OPTIONS: tuple[Option, ...] = (
    Option(
        "errors.tolerance",
        STRING,
        "Whether a failure stops the run.",
        default="none",
        check=one_of("none", "all"),
        valid="none, all",
    ),
    Option("errors.log.enable", BOOLEAN, "Log failures with stage, class, message and place.", default=False),
    Option("errors.log.include.messages", BOOLEAN, "Log the record's key and value too.", default=False),
    Option("errors.retry.timeout", LONG, "No effect: nothing here fails for a passing reason.", default=0),
    Option("errors.retry.delay.max.ms", LONG, "No effect; see errors.retry.timeout.", default=60000),
    Option("errors.deadletterqueue.topic.name", STRING, "Where failed records go; blank for nowhere.", default=""),
    Option(
        "errors.deadletterqueue.topic.replication.factor",
        SHORT,
        "No effect: topics are not created.",
        default=_REPLICATION,
    ),
    Option("errors.deadletterqueue.context.headers.enable", BOOLEAN, "Add __connect.errors.* headers.", default=False),
    Option(
        "errors.predicates",
        STRING,
        "Result of a failing predicate: a failure, or no match; Filter then drops the record (not in Kafka).",
        default="fail",
        check=one_of("fail", "not-matched"),
        valid="fail, not-matched",
    ),
)

_FIELDS = (
    "tolerance",
    "log",
    "log_messages",
    "retry_timeout",
    "retry_delay_max",
    "dead_letter_topic",
    "dead_letter_replication",
    "dead_letter_headers",
    "failed_predicates",
)


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
