"""Computed values: expressions of CEL over a record, bounded in time, depth and size."""

from turnout.expressions.expression import BatchReader, Expression, ExpressionError, Inputs, TableRows, looking_up

__all__ = ["BatchReader", "Expression", "ExpressionError", "Inputs", "TableRows", "looking_up"]
