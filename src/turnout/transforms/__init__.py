"""Kafka Connect's transforms and predicates as values: names, options, chains (KIP-66, KIP-585, KIP-821)."""

from turnout.base.options import REQUIRED
from turnout.records.schema import Field, Schema
from turnout.transforms.base import Errors, Mask, Predicate, Side, Step, Transform
from turnout.transforms.chain import Chain, ChainMistake, Guard, Stage
from turnout.transforms.config import ErrorPolicy
from turnout.transforms.options import BOOLEAN, INT, LIST, LONG, SHORT, STRING, Option
from turnout.transforms.schemas import unknown_fields

__all__ = [
    "BOOLEAN",
    "INT",
    "LIST",
    "LONG",
    "REQUIRED",
    "SHORT",
    "STRING",
    "Chain",
    "ChainMistake",
    "ErrorPolicy",
    "Errors",
    "Field",
    "Guard",
    "Mask",
    "Option",
    "Predicate",
    "Schema",
    "Side",
    "Stage",
    "Step",
    "Transform",
    "unknown_fields",
]
