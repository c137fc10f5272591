"""One tree of errors; the server's codes choose among them."""

from __future__ import annotations

import inspect

import pytest

from turnout.errors import StreamError
from turnout.nats.jetstream import errors
from turnout.nats.jetstream.errors import api_error


@pytest.mark.parametrize(
    ("code", "err_code", "kind"),
    [
        (404, 10059, errors.StreamNotFoundError), (404, 10014, errors.ConsumerNotFoundError),
        (400, 10013, errors.ConsumerExistsError), (400, 10105, errors.ConsumerExistsError),
        (400, 10148, errors.ConsumerExistsError), (404, 10037, errors.MessageNotFoundError),
        (400, 10071, errors.WrongLastSequenceError), (400, 10164, errors.WrongLastSequenceError),
        (503, 10039, errors.JetStreamNotEnabledError), (503, 10008, errors.JetStreamUnavailableError),
        (503, 10023, errors.JetStreamUnavailableError), (400, 10058, errors.StreamNameInUseError),
        (400, 10204, errors.ConsumerResetError), (400, 10174, errors.BatchPublishError),
        (400, 10176, errors.BatchIncompleteError), (400, 10208, errors.BatchIncompleteError),
        (400, 10199, errors.BatchTooLargeError), (429, 10210, errors.TooManyBatchesError),
        (429, 10211, errors.TooManyBatchesError), (400, 10189, errors.ScheduleError),
        (400, 10212, errors.ScheduleError), (400, 10165, errors.MessageTtlError), (400, 10172, errors.CounterError),
        (418, 99999, StreamError),
    ],
)  # fmt: skip
def test_codes_are_kept(code: int, err_code: int, kind: type[StreamError]) -> None:
    """The server's codes choose the class, and are kept on it."""
    failure = api_error({"code": code, "err_code": err_code, "description": "why"}, request="X.Y")

    assert type(failure) is kind
    assert (failure.code, failure.err_code) == (code, err_code)
    assert "X.Y" in str(failure)
    assert "why" in str(failure)


def test_one_tree() -> None:
    """Every error class of the package is a StreamError, listed in its docstring, and says when it is raised."""
    for name in errors.__all__:
        value = getattr(errors, name)
        if inspect.isclass(value):
            assert issubclass(value, StreamError), name
            assert name in (errors.__doc__ or ""), name
            assert (value.__doc__ or "").startswith(("Raised when", "Reported when", "Raised, or reported")), name
