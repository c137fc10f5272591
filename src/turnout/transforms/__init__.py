"""Kafka Connect's transforms and predicates as values: names, options, chains (KIP-66, KIP-585, KIP-821)."""

from turnout.transforms.base import Predicate, Side, Transform
from turnout.transforms.chain import Chain, ChainMistake, Guard, Stage
from turnout.transforms.options import REQUIRED, Option
from turnout.transforms.policy import ErrorPolicy
from turnout.transforms.schema import Field, Schema
from turnout.transforms.values import ValueFormat

__all__ = [
    "REQUIRED",
    "Chain",
    "ChainMistake",
    "ErrorPolicy",
    "Field",
    "Guard",
    "Option",
    "Predicate",
    "Schema",
    "Side",
    "Stage",
    "Transform",
    "ValueFormat",
]
