"""Recognises hosts that end a user's processes at logout, which would end jobs with the channel."""

import os
import pwd
import re
from typing import Dict, List

ROOT = "/"
CONFIGURATION_DIRECTORIES = ("usr/lib/systemd", "usr/local/lib/systemd", "run/systemd", "etc/systemd")
"""From the weakest to the strongest."""
_SETTING = re.compile(r"\s*(KillUserProcesses|KillOnlyUsers|KillExcludeUsers)\s*=\s*(.*?)\s*\Z")
_TRUE = ("1", "yes", "y", "true", "t", "on")


def logout_notices(root: str = ROOT, user: str = "") -> List[str]:
    """Sentences with advice for the user; none where processes outlive a logout. `root`: where the files are."""
    user = user or _user_name()
    if not os.path.isdir(os.path.join(root, "run/systemd/users")):
        return []  # logind does not run here
    if os.path.exists(os.path.join(root, "var/lib/systemd/linger", user)):
        return []
    if not _kills_processes_of(user, _settings(root)):
        return []
    return [
        "This host ends all processes of %s at logout (KillUserProcesses=yes of logind), so jobs end when the last"
        " connection does. `loginctl enable-linger %s` on the host prevents that; otherwise ask its administrator for"
        " KillExcludeUsers=%s in logind.conf." % (user, user, user)
    ]


def _settings(root: str) -> Dict[str, str]:
    """The settings of logind: the strongest main file, and then all files of `logind.conf.d` in the order of their
    names, of which a stronger one replaces a weaker one of the same name."""
    main = ""
    parts: Dict[str, str] = {}
    for directory in CONFIGURATION_DIRECTORIES:
        path = os.path.join(root, directory, "logind.conf")
        main = path if os.path.exists(path) else main
        folder = path + ".d"
        if os.path.isdir(folder):
            parts.update({name: os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".conf")})
    found: Dict[str, str] = {}
    for path in [main] * bool(main) + [parts[name] for name in sorted(parts)]:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                matches = [_SETTING.match(line) for line in file]
        except OSError:
            continue  # not for the eyes of users
        found.update({match.group(1): match.group(2) for match in matches if match is not None})
    return found


def _kills_processes_of(user: str, settings: Dict[str, str]) -> bool:
    if settings.get("KillUserProcesses", "no").lower() not in _TRUE:
        return False
    if user in settings.get("KillExcludeUsers", "root").split():
        return False
    only = settings.get("KillOnlyUsers", "").split()
    return not only or user in only


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
