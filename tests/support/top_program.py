"""The terminal view of a run in memory, as a program: `python -m tests.support.top_program RUN [CONTROL_FD]`.

Lines on the control descriptor change the run while it is shown.
"""

from __future__ import annotations

import os
import sys
import threading

from qcg.pilotjob.cli.signals import exiting_on_signals
from qcg.pilotjob.top.app import run_top
from qcg.pilotjob.top.terminal import look_of
from qcg.pilotjob.watch.source import JobLine
from tests.support.hostile_texts import HOSTILE
from tests.support.memory_run import NOW, MemoryRun, summary_of
from tests.support.sample_run import sample_run


def _hostile() -> MemoryRun:
    texts = list(HOSTILE.values())
    lines = [JobLine(text, "FAILED", NOW, NOW, NOW + 1, message=text, grant=text) for text in texts]
    run = MemoryRun(lines, summary_of(lines, host=texts[0], notices=tuple(texts[:2])))
    for text in texts:
        run.outputs[text, "stdout"] = "\n".join(texts).encode(errors="surrogatepass")
        run.whys[text] = text
    return run


RUNS = {"sample": sample_run, "empty": MemoryRun, "hostile": _hostile}


def control(run: MemoryRun, descriptor: int) -> None:
    """Carry out the lines of the test."""
    with os.fdopen(descriptor) as lines:
        for line in lines:
            word, *rest = line.split()
            if word == "alive":
                run.change(alive=rest == ["yes"])
            elif word == "fail":
                run.error = OSError("the file system is away")
                run.change()
            elif word == "recover":
                run.error = None
            elif word == "defect":
                run.error = ZeroDivisionError("a defect")
                run.change()
            elif word == "block":
                run.open.clear()
            elif word == "unblock":
                run.open.set()
            elif word == "write":
                run.outputs["case_0413", "stdout"] += (" ".join(rest) + "\n").encode()
            else:
                raise ValueError(line)


def main() -> None:
    run = RUNS[sys.argv[1]]()
    if len(sys.argv) > 2:
        threading.Thread(target=control, args=(run, int(sys.argv[2])), daemon=True).start()
    with exiting_on_signals():
        run_top(run, look_of(os.environ, sys.stdout.encoding), 0, 1)


if __name__ == "__main__":
    main()
