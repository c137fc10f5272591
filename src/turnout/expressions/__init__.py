"""Computed values: expressions of CEL over a record, bounded in time, depth and size."""

from turnout.expressions.expression import Expression
from turnout.expressions.inputs import Inputs

__all__ = ["Expression", "Inputs"]
