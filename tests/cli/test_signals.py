"""Asking a command to end."""

from __future__ import annotations

import signal

import pytest

from turnout.cli.signals import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.timeout(60)
def test_a_signal_that_comes_while_the_event_is_locked(number: signal.Signals) -> None:
    """It sets the event, and does not wait for the lock that the main thread holds while it looks at the event."""
    with stop_on_signals() as stop:
        with stop._cond:
            signal.raise_signal(number)

        assert stop.wait(30)


def test_the_handlers_that_were_there_are_there_again() -> None:
    """After the block, and after the first signal: a second one ends the process as it always did."""
    before = signal.getsignal(signal.SIGINT)

    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(30)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is before
