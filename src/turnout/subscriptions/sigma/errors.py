"""Errors of reading rules, which never leave the package."""

from __future__ import annotations


class InexpressibleError(Exception):
    """Raised for the part of a rule that no condition can express.

    Attributes:
        path: path of the part, below ``detection``.
        reason: the part that cannot be expressed.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
