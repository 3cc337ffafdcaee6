"""The shell commands that load environment modules and virtual environments before a program starts.

Only jobs that ask for one of these get a shell. The program and its arguments are handed on as they are, never as text
for a shell to read. Errors are written to descriptor 3, and the host makes them the message of the job.
"""

from __future__ import annotations

_SETUP = r"""
fail() { printf '%s' "$1" >&3; exit 1; }
not_loaded() {
    why="its stderr says why"
    [ /dev/fd/2 -ef /dev/null ] && why='give the job a "stderr", and it says why'
    fail "module '$1' could not be loaded; $why"
}
count=$1; shift
if [ "$count" -gt 0 ]; then
    type module >/dev/null 2>&1 || . /etc/profile >/dev/null 2>&1
    type module >/dev/null 2>&1 || fail "modules were asked for, and there is no 'module' command on $HOSTNAME"
fi
while [ "$count" -gt 0 ]; do
    before=${LOADEDMODULES-}
    module load "$1" || not_loaded "$1"
    if [ "$before" = "${LOADEDMODULES-}" ]; then
        case ":$before:" in
            *":$1:"* | *":$1/"*) ;;
            *) not_loaded "$1" ;;
        esac
    fi
    shift; count=$((count - 1))
done
venv=$1; shift
if [ -n "$venv" ]; then
    [ -r "$venv/bin/activate" ] || fail "there is no virtual environment at '$venv' (no bin/activate in it)"
    . "$venv/bin/activate" || fail "the virtual environment at '$venv' could not be activated"
fi
type -P -- "$1" >/dev/null || fail "there is no program '$1' that could be started"
exec -- "$@" 3>&-
"""

# Defined at its first call: reading the profile resets PATH, which must not affect scripts without modules.
_MODULE_COMMAND = (
    'type module >/dev/null 2>&1 || module() { unset -f module; . /etc/profile >/dev/null 2>&1; module "$@"; }; '
)


def wrapped(argv: list[str], modules: tuple[str, ...], venv: str) -> list[str]:
    """The command that loads modules, activates the virtual environment and then becomes `argv`."""
    return ["bash", "-c", _SETUP, "qcg-pm-setup", str(len(modules)), *modules, venv, *argv]


def refused(why: str) -> list[str]:
    """The command of a job that cannot be started: it reports the reason as an error of the setup."""
    return ["bash", "-c", 'printf %s "$1" >&3; exit 1', "qcg-pm-refusal", why]


def script_command(script: str) -> list[str]:
    """The command that runs a script with bash. `module` is defined in it, as in a login shell."""
    return ["bash", "-c", _MODULE_COMMAND + script if "module " in script else script]
