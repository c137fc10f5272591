"""Asking a command to end."""

from __future__ import annotations

import signal
import threading

import pytest

from turnout.cli.signals import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.timeout(60)
def test_a_signal_that_comes_while_the_event_is_locked(number: signal.Signals) -> None:
    """It sets the event without waiting for the lock that the main thread holds while it checks the event."""
    with stop_on_signals() as stop:
        with vars(stop)["_cond"]:
            signal.raise_signal(number)

        assert stop.wait(30)


@pytest.mark.timeout(60)
def test_a_signal_that_another_thread_gets() -> None:
    """The main thread waits and does not notice; the event is set all the same, and at once."""
    with stop_on_signals() as stop:
        waits = threading.Event()

        def get_it() -> None:
            waits.wait()
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        thread = threading.Thread(target=get_it)
        thread.start()
        waits.set()

        assert stop.wait(30)
        thread.join()


def test_the_handlers_that_were_there_are_there_again() -> None:
    """After the block, and after the first signal: a second one ends the process as it always did."""
    before, descriptor = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor)

    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(30)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is before
    assert signal.set_wakeup_fd(descriptor) == descriptor
