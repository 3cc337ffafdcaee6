"""A job with relatives that try to outlive it. Each writes its pid to `<name>.pid` before it sleeps."""

import os
import signal
import subprocess
import sys
import time

SLEEP = "import os, sys, time; open(sys.argv[1] + '.pid', 'w').write(f'{os.getpid()}\\n'); time.sleep(1000)"


def sleeper(name: str, **options: object) -> None:
    subprocess.Popen([sys.executable, "-c", SLEEP, name], **options)  # type: ignore[call-overload]


def write_pid(name: str) -> None:
    with open(f"{name}.pid", "w") as file:
        file.write(f"{os.getpid()}\n")


def daemon() -> None:
    """Forked twice, in a session of its own, without a parent; with `--bare` without its environment too."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execve(sys.executable, [sys.executable, "-c", SLEEP, "daemon"], {} if "--bare" in sys.argv else dict(os.environ))


def stubborn() -> None:
    """Ignores all signals that can be ignored, and so does its child."""
    if os.fork():
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    sleeper("stubborn-child")
    write_pid("stubborn")
    while True:
        time.sleep(1000)


def grandchild() -> None:
    if os.fork():
        return
    sleeper("grandchild")
    write_pid("child")
    time.sleep(1000)


sleeper("setsid", start_new_session=True)
sleeper("group", process_group=0) if sys.version_info >= (3, 11) else sleeper("group", preexec_fn=os.setpgrp)
daemon()
grandchild()
if "--stubborn" in sys.argv:
    stubborn()
write_pid("job")
if "--leave" not in sys.argv and not os.path.exists("stop"):
    time.sleep(1000)
while len([name for name in os.listdir() if name.endswith(".pid") and os.path.getsize(name)]) < 6:
    time.sleep(0.01)
