"""The first process of a virtual machine of `tests/support/virtual_machine.py`: mounts file systems, adds swap space,
runs unit tests, and switches the machine off. It imports only the standard library."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import traceback
import unittest

PASSED = "guest: all tests passed"
SWAP = "/dev/nvme0n1"
CGROUPS = "/sys/fs/cgroup"

# Nothing over /tmp: the modules of the tests may be there, as they are on the machine that runs this one.
_MOUNTS = (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("cgroup2", CGROUPS))
_PAGE = 4096
_POWER_OFF = 0x4321FEDC


def main(module: str) -> None:
    """Run the unit tests of this module."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        for kind, directory in _MOUNTS:
            _check(libc.mount(kind.encode(), directory.encode(), kind.encode(), 0, None), f"mount {directory}")
        os.chmod("/tmp", 0o1777)
        _add_swap(libc)
        os.environ["PATH"] = "/bin:/usr/bin"
        # Not this process: its descendants are all processes of the machine.
        pid = os.fork()
        if pid == 0:
            os._exit(_run_tests(module))
        if os.waitpid(pid, 0)[1] == 0:
            print(PASSED, flush=True)
    except BaseException:  # noqa: BLE001 - the machine must be switched off
        traceback.print_exc(file=sys.stdout)
    finally:
        sys.stdout.flush()
        libc.reboot(_POWER_OFF)


def _run_tests(module: str) -> int:
    try:
        suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))
        result = unittest.TextTestRunner(sys.stdout, verbosity=2).run(suite)
        return 0 if result.testsRun and result.wasSuccessful() and not result.skipped else 1
    except BaseException:  # noqa: BLE001 - it is shown
        traceback.print_exc(file=sys.stdout)
        return 1
    finally:
        sys.stdout.flush()


def _add_swap(libc: ctypes.CDLL) -> None:
    with open(SWAP, "r+b") as device:
        pages = device.seek(0, os.SEEK_END) // _PAGE
        header = bytearray(_PAGE)
        header[1024:1032] = (1).to_bytes(4, sys.byteorder) + (pages - 1).to_bytes(4, sys.byteorder)
        header[-10:] = b"SWAPSPACE2"
        device.seek(0)
        device.write(header)
    _check(libc.swapon(SWAP.encode(), 0), f"swapon {SWAP}")


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
