"""The end of a call with a status that no error of turnout's has."""

from __future__ import annotations

import grpc


class RefusedError(Exception):
    """Raised inside a call to end it with this status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
