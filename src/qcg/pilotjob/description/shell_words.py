"""References to variables that only a shell would replace, in texts that no shell reads."""

from __future__ import annotations

from qcg.pilotjob.description.model import Execution
from qcg.pilotjob.description.variables import references

_TEXT_FOLLOWS = frozenset({"-c", "-e"})
"""Options of shells and interpreters before a program as text."""
_GIVES_TO_SHELL = frozenset({"ssh", "parallel", "xargs", "watch", "su"})
"""Programs that give their arguments to a shell."""


def names_no_shell_reads(execution: Execution) -> set[str]:
    """The names of references in the arguments of a program, and in the paths of a job.

    Arguments with blanks are left out, as are all arguments of interpreters: they may be programs.
    """
    paths = (execution.exec, execution.wd, execution.stdin, execution.stdout, execution.stderr)
    texts = [path for path in paths if path is not None and "${" in path]
    program = (execution.exec or "").rpartition("/")[2]
    if program not in _GIVES_TO_SHELL and _TEXT_FOLLOWS.isdisjoint(execution.args):
        texts += [arg for arg in execution.args if "${" in arg and not any(map(str.isspace, arg))]
    return {name for text in texts for name in references(text) if "." not in name}
