"""A route as a program over batches; the library, ``explain``, tests, the service and Spark's tasks call it."""

from turnout.engine.counts import Counts
from turnout.engine.messages import Messages
from turnout.engine.program import Program
from turnout.engine.reading import pieces
from turnout.engine.result import Result
from turnout.records import Batch

__all__ = ["Batch", "Counts", "Messages", "Program", "Result", "pieces"]
