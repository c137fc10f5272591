"""Computed values: expressions of CEL over a record, bounded in time, depth and size."""

from turnout.expressions.expression import Expression, ExpressionError
from turnout.expressions.inputs import BatchReader, Inputs

__all__ = ["BatchReader", "Expression", "ExpressionError", "Inputs"]
