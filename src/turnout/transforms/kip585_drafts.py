"""The spellings of KIP-585's two drafts, read as the released form.

Inline: ``transforms.x.?type``, ``?negate``, ``?option``. Filter: ``condition``, ``condition.option``.
``If``: ``if.type``, ``if.option``, ``then=a,b``, ``then.a.type``. A draft's ``If`` tests once; here each of its
transforms tests for itself, as the released form does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnout.base.terminal import did_you_mean
from turnout.transforms.java.text import split_list, trim
from turnout.transforms.options import Option, OptionError, RawOptions
from turnout.transforms.specs import PredicateSpec, StageSpec

_RENAMED = {"regex": "pattern"}
"""``TopicMatches`` of the first draft calls its pattern ``regex``."""


def _below(options: RawOptions, prefix: str) -> dict[str, str | None]:
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _renamed(options: dict[str, str | None]) -> dict[str, str | None]:
    return {_RENAMED.get(name, name): value for name, value in options.items()}


def parsed_switch(name: str, text: str | None, mistakes: list[OptionError]) -> bool:
    """Parse a switch; other texts add a mistake and count as false."""
    try:
        return bool(Option(name, "BOOLEAN", "").parse(text or ""))
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
