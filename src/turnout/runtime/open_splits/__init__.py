"""Splits without an end: their position and counts, which tasks report to the driver while they read.

Decision 15 (docs/decisions/0015-open-splits.md) says why the driver keeps them, and what follows a failure.
"""
