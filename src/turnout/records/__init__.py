"""Batches of records: parallel columns, values by column, headers with offsets, and Connect's schemas."""

from turnout.records.batch import ALIVE, FAILED, FILTERED, Batch, Failure, Record, group
from turnout.records.block import Block, Origin, Positions, Shape
from turnout.records.headers import Header, Headers
from turnout.records.schema import BigInt, Field, Float32, Int8, Int16, Int32, Moment, Schema, Struct

__all__ = [
    "ALIVE",
    "FAILED",
    "FILTERED",
    "Batch",
    "BigInt",
    "Block",
    "Failure",
    "Field",
    "Float32",
    "Header",
    "Headers",
    "Int8",
    "Int16",
    "Int32",
    "Moment",
    "Origin",
    "Positions",
    "Record",
    "Schema",
    "Shape",
    "Struct",
    "group",
]
