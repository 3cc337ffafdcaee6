"""The terminal view in a real pseudo-terminal: keys, sizes, signals, and a terminal that is restored."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qcg.pilotjob.common.exit_codes import CANNOT_START
from qcg.pilotjob.top.model import Look
from qcg.pilotjob.top.terminal import look_of, why_unusable
from tests.support.hostile_texts import harm_in
from tests.support.pilot import COMMANDS, run
from tests.support.processes import is_stopped
from tests.support.project import ROOT
from tests.support.pseudo_terminal import PATIENCE, PseudoTerminal, text_written
from tests.support.waiting import wait_for

SIZES = [(80, 24), (200, 50)]
PROGRAM = [sys.executable, "-m", "tests.support.top_program"]


@contextmanager
def top(
    run_name: str = "sample", size: tuple[int, int] = (80, 24), environment: dict[str, str] | None = None
) -> Iterator[PseudoTerminal]:
    with PseudoTerminal([*PROGRAM, run_name], size, environment, cwd=ROOT) as terminal:
        terminal.wait_for("qcg-pm top")
        yield terminal


class Controlled:
    """A view of a run that the test changes."""

    def __init__(self, terminal: PseudoTerminal, control: int) -> None:
        self.terminal = terminal
        self._control = control

    def tell(self, line: str) -> None:
        os.write(self._control, f"{line}\n".encode())


@contextmanager
def controlled_top() -> Iterator[Controlled]:
    read_end, write_end = os.pipe()
    try:
        with PseudoTerminal([*PROGRAM, "sample", str(read_end)], cwd=ROOT, pass_fds=[read_end]) as terminal:
            os.close(read_end)
            read_end = -1
            terminal.wait_for("62 %")
            yield Controlled(terminal, write_end)
    finally:
        os.close(write_end)
        if read_end >= 0:
            os.close(read_end)


@pytest.mark.parametrize("size", SIZES)
def test_all_views_are_reached_with_keys(size: tuple[int, int]):
    with top(size=size) as terminal:
        terminal.wait_for("62 %", "Cores 236 of 256", "exit code 1, after 2 retries", "q quit")
        terminal.press("2")
        terminal.wait_for("case_6170", "running and failed first", "1 of 640")
        terminal.press("/", *"0413", "enter")
        terminal.wait_for("filter: 0413", "1 of 1", absent=["case_6170"])
        terminal.press("enter")
        terminal.wait_for("It failed with exit code 1", "Attempts", "Dependencies")
        terminal.press("l")
        terminal.wait_for("stdout of case_0413", "following", "FloatingPointError: the solution diverged")
        terminal.press("e")
        terminal.wait_for("stderr of case_0413", absent=["Step 1188"])
        terminal.press("escape")
        terminal.wait_for("Attempts")
        terminal.press("?")
        terminal.wait_for("Everywhere", "Actions, with confirmation")
        terminal.press("1")
        terminal.wait_for("Attempts")
        terminal.press("1")
        terminal.wait_for("62 %")
        terminal.press("q")
        assert terminal.wait_for_exit() == 0
        assert terminal.restored


def test_the_screen_is_drawn_again_when_the_window_is_resized():
    with top() as terminal:
        terminal.wait_for("62 %")
        terminal.resize(200, 50)
        terminal.wait_for("Ends of jobs", "q quit")
        assert "q quit" in terminal.lines[49]
        terminal.press("2")
        terminal.wait_for("case_6170")
        terminal.press("pagedown", "pagedown")
        terminal.wait_for("91 of 640")
        terminal.resize(60, 12)
        terminal.wait_for("91 of 640", "q quit")
        assert "q quit" in terminal.lines[11]
        terminal.resize(10, 3)
        terminal.wait_until(lambda text: "live" in text.split("\n")[0] and "640" in text, "a tiny screen")
        terminal.resize(80, 24)
        terminal.wait_for("91 of 640", "q quit")
        terminal.press("q")
        assert terminal.wait_for_exit() == 0


@pytest.mark.parametrize("size", SIZES)
def test_a_run_without_jobs_is_shown(size: tuple[int, int]):
    with top("empty", size) as terminal:
        terminal.wait_for("There are no jobs yet.", "q quit")
        assert "q quit" in terminal.lines[size[1] - 1]
        terminal.press("2", "enter", "c", "end", "l")
        terminal.wait_for("jobs │ all states", "There are no jobs yet.")
        terminal.press("ctrl-c")
        assert terminal.wait_for_exit() == 0
        assert terminal.restored


def test_an_action_needs_a_confirmation():
    with top() as terminal:
        terminal.press("2")
        terminal.wait_for("case_6170")
        terminal.press("space", "space", "c")
        terminal.wait_for("Cancel case_6170, case_6236?  y: yes, n: no")
        terminal.press("n")
        terminal.wait_for("Nothing was changed.")
        terminal.press("c", "y")
        terminal.wait_for("cancel: 2 jobs.", absent=["y: yes"])


def test_the_end_of_the_manager_is_shown_and_actions_are_refused():
    with controlled_top() as top:
        top.tell("alive no")
        top.terminal.wait_for("The manager has ended.", "○ no manager")
        top.terminal.press("2")
        top.terminal.wait_for("case_6170")
        top.terminal.press("r")
        top.terminal.wait_for("This run has no manager, so it cannot rerun jobs.")
        top.tell("alive yes")
        top.terminal.wait_for("A manager runs again", "● live")


def test_output_is_shown_as_it_is_written():
    with controlled_top() as top:
        top.terminal.press("l")
        top.terminal.wait_for("FloatingPointError")
        for number in range(3):
            top.tell(f"write new line {number}")
            top.terminal.wait_for(f"new line {number}")


def test_a_slow_run_does_not_keep_keys_waiting():
    with controlled_top() as top:
        top.tell("block")
        top.terminal.press("2")
        top.terminal.wait_for("Reading the jobs ...")
        top.terminal.press("?")
        top.terminal.wait_for("Everywhere")
        top.terminal.press("x", "1")
        top.terminal.wait_for("62 %")
        top.terminal.press("2")
        top.tell("unblock")
        top.terminal.wait_for("case_6170")
        top.tell("block")
        top.terminal.press("1", "q")
        assert top.terminal.wait_for_exit() == 0
        assert top.terminal.restored


def test_a_run_that_cannot_be_read_is_tried_again():
    with controlled_top() as top:
        top.tell("fail")
        top.terminal.wait_for("The run cannot be read at the moment: the file system is away")
        top.tell("recover")
        top.terminal.wait_for("62 %", absent=["cannot be read"])


def test_a_defect_restores_the_terminal_before_it_is_reported():
    with controlled_top() as top:
        top.tell("defect")
        assert top.terminal.wait_for_exit() == 1
        assert top.terminal.restored
        assert "ZeroDivisionError: a defect" in top.terminal.text


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)], ids=lambda one: str(one)
)
def test_signals_restore_the_terminal(number: signal.Signals, code: int):
    with top() as terminal:
        terminal.wait_for("62 %")
        assert not terminal.restored
        terminal.process.send_signal(number)
        assert terminal.wait_for_exit() == code
        assert terminal.restored


@pytest.mark.parametrize(("ignored", "code"), [(False, 129), (True, 0)], ids=["hangup", "hangup ignored"])
def test_a_view_whose_window_is_closed_ends(ignored: bool, code: int):
    trap = "trap '' HUP; " if ignored else ""
    shell = ["sh", "-c", f"{trap}exec {sys.executable} -m tests.support.top_program sample"]
    with PseudoTerminal(shell, cwd=ROOT) as terminal:
        terminal.wait_for("62 %")
        terminal.hang_up()
        assert terminal.process.wait(PATIENCE) == code


@pytest.mark.parametrize("way", ["ctrl-z", "SIGTSTP"])
def test_a_stopped_view_gives_the_terminal_back_until_it_continues(way: str):
    # A parent in the same session, as a shell is: an orphaned process group is not stopped.
    shell = ["sh", "-mc", f"{sys.executable} -m tests.support.top_program sample; kill -l $?; fg; echo over $?"]
    with PseudoTerminal(shell, cwd=ROOT) as terminal:
        terminal.wait_for("62 %")
        top = next(iter(_children(terminal.process.pid)))
        if way == "ctrl-z":
            terminal.press("ctrl-z")
        else:
            os.kill(top, signal.SIGTSTP)
        terminal.wait_until(lambda text: b"TSTP" in terminal.written, "the shell to notice")
        assert b"\x1b[?1049l" in terminal.written
        terminal.wait_until(lambda text: terminal.written.count(b"\x1b[?1049h") >= 2, "the view to continue")
        terminal.wait_for("62 %")
        terminal.press("2")
        terminal.wait_for("case_6170")
        terminal.press("q")
        terminal.wait_for("over 0")
        assert terminal.wait_for_exit() == 0
        assert terminal.restored


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_view_that_was_stopped_without_notice_draws_again():
    with top() as terminal:
        terminal.wait_for("62 %")
        stopped = terminal.process.pid
        os.kill(stopped, signal.SIGSTOP)
        wait_for(lambda: is_stopped(stopped), what="the view to stop")
        os.kill(stopped, signal.SIGCONT)
        terminal.press("ctrl-l", "2")
        terminal.wait_for("case_6170")


def test_hostile_names_do_nothing_to_the_terminal():
    with top("hostile", (120, 40)) as terminal:
        terminal.press("2")
        terminal.wait_for("a\\n2026-01-01", "a\\x1b]0;owned", "1 of 27")
        terminal.press("enter")
        terminal.wait_for("submitted")
        terminal.press("l")
        terminal.wait_for("following")
        terminal.press("q")
        assert terminal.wait_for_exit() == 0
        assert harm_in(text_written(terminal.written), "\r\n") == []
        assert b"owned\x07" not in terminal.written


def test_colours_are_left_out_when_they_are_not_wanted():
    with top() as terminal:
        terminal.wait_for("✗ 47 failed")
        assert terminal.style_at("✗ 47 failed").fg == "red"
    with top(environment={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for("✗ 47 failed", "✓✓✓✓")
        assert terminal.style_at("✗ 47 failed").fg == "default"


def test_ascii_is_drawn_without_utf8():
    with top(environment={"LC_ALL": "C"}) as terminal:
        terminal.wait_for("x 47 failed", "++++", "* live on login2")
        terminal.press("2", "l")
        terminal.wait_for("case_6170")
        terminal.press("q")
        assert terminal.wait_for_exit() == 0
        assert terminal.written.isascii()


def test_only_what_changes_is_written():
    with top() as terminal:
        terminal.wait_for("62 %")
        terminal.press("2")
        terminal.wait_for("case_6170")
        before = len(terminal.written)
        terminal.press("down")
        terminal.wait_for("2 of 640")
        assert len(terminal.written) - before < 1500


def test_a_terminal_that_cannot_place_text_is_refused_with_one_sentence(tmp_path: Path):
    command = [sys.executable, *COMMANDS["qcg-pm"], "top", str(tmp_path)]
    with PseudoTerminal(command, environment={"TERM": "dumb"}) as terminal:
        assert terminal.wait_for_exit() == CANNOT_START
        assert "the terminal cannot place text on the screen (TERM is 'dumb')" in terminal.text.replace("\n", "")
        assert terminal.restored


def test_a_missing_terminal_is_reported_in_one_sentence(tmp_path: Path):
    done = run("qcg-pm", "top", tmp_path)
    assert (done.returncode, done.stdout) == (CANNOT_START, "")
    assert done.stderr == (
        "Error: qcg-pm top needs a terminal for its keys and its screen; "
        "qcg-pm status and qcg-pm jobs print the state of a run\n"
    )


@pytest.mark.parametrize("words", [["top", "DIR"], ["top", "-p", "DIR"], ["-p", "DIR", "top"]], ids=" ".join)
def test_a_directory_without_runs_is_reported_in_one_sentence(tmp_path: Path, words: list[str]):
    arguments = [str(tmp_path) if word == "DIR" else word for word in words]
    with PseudoTerminal([sys.executable, *COMMANDS["qcg-pm"], *arguments], (200, 24)) as terminal:
        assert terminal.wait_for_exit() == CANNOT_START
        assert "Error: " in terminal.text
        assert str(tmp_path) in terminal.text.replace("\n", "")
        assert "Traceback" not in terminal.text
        assert terminal.restored


@pytest.mark.parametrize(
    ("environ", "encoding", "look"),
    [
        ({"TERM": "xterm"}, "utf-8", Look()),
        ({"TERM": "xterm"}, "UTF8", Look()),
        ({"TERM": "xterm"}, "iso8859-1", Look(ascii=True)),
        ({"TERM": "xterm", "LC_ALL": "C"}, "utf-8", Look(ascii=True)),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "utf-8", Look(colour=False)),
        ({"TERM": "xterm", "NO_COLOR": ""}, "utf-8", Look()),
        ({"TERM": "vt100"}, "utf-8", Look(colour=False)),
        ({"TERM": "xterm-mono"}, "utf-8", Look(colour=False)),
    ],
)
def test_colours_and_characters_follow_the_environment(environ: dict[str, str], encoding: str, look: Look):
    assert look_of(environ, encoding) == look


@pytest.mark.parametrize("term", ["", "dumb", "unknown"])
def test_terminals_without_a_screen_are_known(term: str):
    assert why_unusable({"TERM": term}, on_terminal=True)
    assert not why_unusable({"TERM": "xterm"}, on_terminal=True)
