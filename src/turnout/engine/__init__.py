"""A route as a program over batches; the library, ``explain``, tests, the service and Spark's tasks call it.

The names are loaded when they are first used: Spark's planning processes need the counts alone.
"""

from typing import TYPE_CHECKING

from turnout.base.startup import names_at_first_use

if TYPE_CHECKING:
    from turnout.engine.counts import Counts
    from turnout.engine.messages import Messages
    from turnout.engine.program import Program
    from turnout.engine.reading import pieces
    from turnout.engine.result import Result
    from turnout.records import Batch

__all__ = ["Batch", "Counts", "Messages", "Program", "Result", "pieces"]

__getattr__ = names_at_first_use(
    __name__,
    {
        "Batch": "turnout.records",
        "Counts": "turnout.engine.counts",
        "Messages": "turnout.engine.messages",
        "Program": "turnout.engine.program",
        "Result": "turnout.engine.result",
        "pieces": "turnout.engine.reading",
    },
)
