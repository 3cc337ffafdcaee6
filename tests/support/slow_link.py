"""A slow link: `python slow_link.py BYTES_PER_SECOND COMMAND ...` runs a command with throttled input."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time


def main() -> int:
    rate = float(sys.argv[1])
    process = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)

    def pass_on() -> None:
        assert process.stdin is not None
        try:
            while data := os.read(0, 8192):
                time.sleep(len(data) / rate)
                process.stdin.write(data)
                process.stdin.flush()
            process.stdin.close()
        except BrokenPipeError:
            return

    threading.Thread(target=pass_on, daemon=True).start()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
