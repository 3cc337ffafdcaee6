"""Signals that end a command."""

from __future__ import annotations

import signal
import threading

from qcg.pilotjob.cli.signals import awaiting_signal

ROUNDS = 2000


def test_a_signal_ends_a_wait_at_whatever_step_it_arrives():
    """Another thread sends each signal while this one is about to wait for it."""
    main = threading.get_ident()
    turn = threading.Semaphore(0)

    def send() -> None:
        for _ in range(ROUNDS):
            turn.acquire()
            signal.pthread_kill(main, signal.SIGTERM)

    sender = threading.Thread(target=send)
    with awaiting_signal() as wait:
        sender.start()
        for _ in range(ROUNDS):
            turn.release()
            wait()
        sender.join()


def test_an_ignored_signal_ends_no_wait_and_handlers_are_restored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        with awaiting_signal() as wait:
            signal.raise_signal(signal.SIGHUP)
            other = threading.Thread(target=signal.pthread_kill, args=(threading.get_ident(), signal.SIGINT))
            other.start()
            wait()
            other.join()
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
