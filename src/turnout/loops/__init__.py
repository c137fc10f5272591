"""Loops over flat arrays that Numba compiles: the one form of a hot operation for any number of records.

Each module is named by its textbook subject and knows nothing of routes. Its functions are plain Python and run
interpreted until `compile_loops` has been called: ``check``, ``explain`` and ``test`` neither import Numba nor wait
for a compilation. `turnout.loops.compiled` says what a loop may contain.
"""

from turnout.loops.compiled import compile_in_background, compile_loops, fill_cache, loops_are_compiled

__all__ = ["compile_in_background", "compile_loops", "fill_cache", "loops_are_compiled"]
