"""Errors and gRPC's statuses."""

from __future__ import annotations

import grpc
import pytest

from turnout.errors import (
    ConditionError,
    HistoryForgottenError,
    StoreUnavailableError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
    TurnoutError,
)
from turnout.rpc.status import STATUS, status_of


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (SubscriptionNotFoundError("x"), grpc.StatusCode.NOT_FOUND),
        (SubscriptionExistsError("x"), grpc.StatusCode.ALREADY_EXISTS),
        (SubscriptionInvalidError("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (ConditionError("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (HistoryForgottenError("x"), grpc.StatusCode.OUT_OF_RANGE),
        (StoreUnavailableError("x"), grpc.StatusCode.UNAVAILABLE),
        (TurnoutError("x"), grpc.StatusCode.INTERNAL),
    ],
)
def test_each_error_has_a_status(failure: TurnoutError, code: grpc.StatusCode) -> None:
    """The first row whose class it is."""
    assert status_of(failure) is code


def test_no_row_hides_a_later_one() -> None:
    """A class stands before those that it derives from."""
    kinds = [kind for kind, _ in STATUS]

    assert not [(one, later) for at, one in enumerate(kinds) for later in kinds[at + 1 :] if issubclass(later, one)]
