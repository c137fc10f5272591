"""The spellings of KIP-585's two drafts, read as the released form.

Inline: ``transforms.x.?type``, ``?negate``, ``?option``. Filter: ``condition``, ``condition.option``.
``If``: ``if.type``, ``if.option``, ``then=a,b``, ``then.a.type``. A draft's ``If`` tests once; here each of its
transforms tests for itself, as the released form does.
"""

from __future__ import annotations

from turnout.transforms.options import RawOptions
from turnout.transforms.specs import PredicateSpec, StageSpec

__all__ = ["condition_spec", "if_specs", "inline_spec", "without_predicates"]

_RENAMED = {"regex": "pattern"}
"""``TopicMatches`` of the first draft calls its pattern ``regex``."""


def _below(options: RawOptions, prefix: str) -> dict[str, str | None]:
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _renamed(options: dict[str, str | None]) -> dict[str, str | None]:
    return {_RENAMED.get(name, name): value for name, value in options.items()}


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"


def inline_spec(alias: str, prefix: str, options: RawOptions) -> list[PredicateSpec]:
    """The predicate of the ``?`` properties of one transform, if it has any."""
    inline = _below(options, "?")
    if not inline:
        return []
    type_ = inline.pop("type", None)
    negate = _is_true(inline.pop("negate", None))
    return [
        PredicateSpec(alias, f"{prefix}?type", f"{prefix}?", type_ and type_.strip(), _renamed(inline), negate=negate)
    ]


def condition_spec(alias: str, prefix: str, options: RawOptions) -> list[PredicateSpec]:
    """The predicate of a draft Filter's ``condition``, if it has one."""
    if "condition" not in options:
        return []
    type_ = options["condition"]
    path = f"{prefix}condition"
    settings = _renamed(_below(options, "condition."))
    return [PredicateSpec(alias, path, f"{path}.", type_ and type_.strip(), settings)]


def without_predicates(options: RawOptions) -> dict[str, str | None]:
    """The options of a transform without those that `inline_spec` and `condition_spec` read."""
    draft = "condition" in options
    return {
        name: value
        for name, value in options.items()
        if not name.startswith("?") and not (draft and (name == "condition" or name.startswith("condition.")))
    }


def if_specs(alias: str, prefix: str, options: RawOptions) -> list[StageSpec]:
    """The stages of a draft's ``If``: each transform of ``then``, guarded by the condition of ``if``."""
    aliases = [name.strip() for name in (options.get("then") or "").split(",")]
    stages = []
    for name in aliases:
        below = _below(options, f"then.{name}.")
        path = f"{prefix}then.{name}."
        type_ = below.get("type")
        guard = _if_predicate(alias, f"{prefix}if.", _below(options, "if."))
        stages.append(StageSpec(f"{alias}.{name}", f"{path}type", path, type_ and type_.strip(), below, [guard]))
    return stages


def _if_predicate(alias: str, prefix: str, options: RawOptions) -> PredicateSpec:
    type_ = (options.get("type") or "").strip() or None
    if type_ == "Not":
        operand = (options.get("operand") or "").strip()
        path = f"{prefix}operand.{operand}."
        inner = _if_predicate(alias, path, _below(options, f"operand.{operand}."))
        inner.negate = not inner.negate
        return inner
    return PredicateSpec(alias, f"{prefix}type", prefix, type_, _renamed(dict(options)))
