"""Commands that the gate admits and refuses. Python 3.6 reads this file."""

import os
import re
import sys
import tempfile
import unittest

from qcg.pilotjob.host.remote import gate
from qcg.pilotjob.host.remote.command_words import split_words
from qcg.pilotjob.host.remote.environment import GATE_ADMITS
from qcg.pilotjob.host.remote.gate import Policy, Refused, decide, environment, printable, read_policy, refuse

RSYNC = "/usr/bin/rsync"
FAR = "python3 /opt/far.pyz"

ADMITTED = [
    # command, sub-command and arguments of the far side, or arguments of rsync
    (FAR + " remote-init qcg-run/r1", ["remote-init", "qcg-run/r1"]),
    (FAR + " jobs-submit qcg-run/r1", ["jobs-submit", "qcg-run/r1"]),
    (FAR + " jobs-poll qcg-run/r1", ["jobs-poll", "qcg-run/r1"]),
    (FAR + " jobs-kill qcg-run/r1", ["jobs-kill", "qcg-run/r1"]),
    (FAR + " cat-log qcg-run/r1", ["cat-log", "qcg-run/r1"]),
    (FAR + " remote-tidy qcg-run/r1", ["remote-tidy", "qcg-run/r1"]),
    (FAR + " remote-serve qcg-run/r1", ["remote-serve", "qcg-run/r1"]),
    (FAR + " message qcg-run/r1 'half way; $HOME'", ["message", "qcg-run/r1", "half way; $HOME"]),
    ("/opt/far.pyz jobs-poll qcg-run/r1", ["jobs-poll", "qcg-run/r1"]),
    ("/usr/bin/python3.11 /opt/far.pyz jobs-poll qcg-run/r1", ["jobs-poll", "qcg-run/r1"]),
    ("  'python3'\t\"/opt/far.pyz\"  jobs\\-poll qcg-run/'r1'  ", ["jobs-poll", "qcg-run/r1"]),
    (FAR + " jobs-poll HOME/qcg-run/r1", ["jobs-poll", "HOME/qcg-run/r1"]),
    (FAR + " jobs-poll qcg-run/r1/", ["jobs-poll", "qcg-run/r1/"]),
    (FAR + " jobs-poll qcg-run/new.2026-01-01", ["jobs-poll", "qcg-run/new.2026-01-01"]),
    ("rsync --server -logDtpre.iLsfxCIvu . qcg-run/r1/", ["-logDtpre.iLsfxCIvu", "--safe-links", ".", "qcg-run/r1/"]),
    (
        "rsync --server -vlogDtprcze31.14LsfxCIvu --delete --partial --timeout=30 --mkpath . HOME/qcg-run/r1/work/1/a",
        [
            "-vlogDtprcze31.14LsfxCIvu",
            "--delete",
            "--partial",
            "--timeout=30",
            "--mkpath",
            "--safe-links",
            ".",
            "HOME/qcg-run/r1/work/1/a",
        ],
    ),
    (
        "rsync --server -lDtprRe.iLsfxCIvu --timeout=600 --copy-unsafe-links . qcg-run/r1/",
        ["-lDtprRe.iLsfxCIvu", "--timeout=600", "--copy-unsafe-links", "--safe-links", ".", "qcg-run/r1/"],
    ),
    (
        "rsync --server --sender -logDtpre.LsfxCIvu . qcg-run/r1/log/",
        ["--sender", "-logDtpre.LsfxCIvu", ".", "qcg-run/r1/log/"],
    ),
    (
        "rsync --server --sender -re.iLsfxCIvu . qcg-run/r1/./log/a qcg-run/r1/it\\'s qcg-run/r1/a\\ b\\;c",
        ["--sender", "-re.iLsfxCIvu", ".", "qcg-run/r1/./log/a", "qcg-run/r1/it's", "qcg-run/r1/a b;c"],
    ),
    ("/usr/bin/rsync --server -re.i . qcg-run/r1/inside/x", ["-re.i", "--safe-links", ".", "qcg-run/r1/inside/x"]),
]

REFUSED = [
    # command, part of the sentence
    ("", "not for a login"),
    (" \t ", "not for a login"),
    ("id", "'id' is no command"),
    ("sh -c id", "a shell is not admitted"),
    ("/bin/sh", "a shell is not admitted"),
    ('bash -l -c \'exec "$0" "$@"\' /opt/far.pyz jobs-poll qcg-run/r1', "login_shell = false"),
    ("scp -t qcg-run/r1", "'scp' is no command"),
    ("/usr/lib/openssh/sftp-server", "no command"),
    ("internal-sftp", "no command"),
    ("env PYTHONPATH=/tmp python3 /opt/far.pyz jobs-poll qcg-run/r1", "'env' is no command"),
    ("PYTHONPATH=/tmp " + FAR + " jobs-poll qcg-run/r1", "no command"),
    ("python3 -c 'import sys;exec(sys.stdin.buffer.readline())' jobs-poll qcg-run/r1", "set command ="),
    ("python3 -c 'import os'", "only the installed far side"),
    ("python3", "only the installed far side"),
    ("python3 /opt/other.pyz jobs-poll qcg-run/r1", "only the installed far side"),
    ("python3 -i /opt/far.pyz jobs-poll qcg-run/r1", "only the installed far side"),
    ("far.pyz jobs-poll qcg-run/r1", "no command"),
    (FAR, "no sub-command"),
    (FAR + " ''", "no sub-command"),
    (FAR + " gate qcg-run/r1", "'gate' is no sub-command"),
    (FAR + " supervise qcg-run/r1", "no sub-command"),
    (FAR + " run-job qcg-run/r1", "no sub-command"),
    (FAR + " JOBS-POLL qcg-run/r1", "no sub-command"),
    (FAR + " --help", "no sub-command"),
    (FAR + " jobs-poll", "takes one run directory"),
    (FAR + " jobs-poll qcg-run/r1 qcg-run/r2", "takes one run directory"),
    (FAR + " jobs-poll qcg-run/r1 --more", "takes one run directory"),
    (FAR + " jobs-poll qcg-run", "is not below qcg-run"),
    (FAR + " jobs-poll qcg-run/", "is not below qcg-run"),
    (FAR + " jobs-poll .", "is not below"),
    (FAR + " jobs-poll ''", "no path"),
    (FAR + " jobs-poll /etc", "is not below"),
    (FAR + " jobs-poll qcg-run-2/r1", "is not below"),
    (FAR + " jobs-poll HOME/qcg-runs", "is not below"),
    (FAR + " jobs-poll qcg-run/..", "no path"),
    (FAR + " jobs-poll qcg-run/../.ssh", "no path"),
    (FAR + " jobs-poll qcg-run/r1/../../.ssh", "no path"),
    (FAR + " jobs-poll qcg-run/r1/work", "not right below"),
    (FAR + " jobs-poll qcg-run/out", "is not below"),
    (FAR + " jobs-poll -r1", "no path"),
    (FAR + " jobs-poll qcg-run/r1; id", "unquoted ;"),
    (FAR + " jobs-poll qcg-run/r1;id", "unquoted ;"),
    (FAR + " jobs-poll qcg-run/r1 && id", "unquoted &"),
    (FAR + " jobs-poll qcg-run/r1 | tee x", "unquoted |"),
    (FAR + " jobs-poll qcg-run/r1 > .ssh/authorized_keys", "unquoted >"),
    (FAR + " jobs-poll qcg-run/r1 < /etc/passwd", "unquoted <"),
    (FAR + " jobs-poll qcg-run/r1 & id", "unquoted &"),
    (FAR + " jobs-poll $(id)", "unquoted $"),
    (FAR + " jobs-poll `id`", "unquoted `"),
    (FAR + ' jobs-poll "qcg-run/$(id)"', "$ between double quotes"),
    (FAR + ' jobs-poll "qcg-run/`id`"', "` between double quotes"),
    (FAR + " jobs-poll $HOME/qcg-run/r1", "unquoted $"),
    (FAR + " jobs-poll ~/qcg-run/r1", "unquoted ~"),
    (FAR + " jobs-poll qcg-run/*", "unquoted *"),
    (FAR + " jobs-poll qcg-run/r?", "unquoted ?"),
    (FAR + " jobs-poll qcg-run/{r1,r2}", "unquoted {"),
    (FAR + " jobs-poll qcg-run/r1 #", "unquoted #"),
    (FAR + " jobs-poll qcg-run/r1\nid", "line break"),
    (FAR + " jobs-poll 'qcg-run/r1\nid'", "line break"),
    (FAR + " jobs-poll qcg-run/r1\\\nid", "line break"),
    (FAR + " jobs-poll qcg-run/r1\rid", "line break"),
    (FAR + " jobs-poll qcg-run/\x1b[2J", "control character"),
    (FAR + " jobs-poll 'qcg-run/r1", "not closed"),
    (FAR + ' jobs-poll "qcg-run/r1', "not closed"),
    (FAR + " jobs-poll qcg-run/r1\\", "backslash"),
    (FAR + " jobs-poll qcg-run/" + "x" * 70000, "longer than"),
    (FAR + " jobs-poll qcg-run/loop/loop", "is not below"),
    ("rsync", "only as a server"),
    ("rsync -a qcg-run/r1/ /etc/", "only as a server"),
    ("rsync --daemon", "only as a server"),
    ("rsync --sender --server -r . qcg-run/r1/", "only as a server"),
    ("/tmp/rsync --server -r . qcg-run/r1/", "no command"),
    ("rsync --server --daemon .", "--daemon is not admitted"),
    ("rsync --server --config=/tmp/x --daemon . qcg-run/r1", "--config=/tmp/x is not admitted"),
    ("rsync --server -logDtpre.iLsfxCIvu .", "no path"),
    ("rsync --server -logDtpre.iLsfxCIvu . qcg-run/r1/ qcg-run/r2/", "several to write to"),
    ("rsync --server -logDtpre.iLsfxCIvu . ''", "no path"),
    ("rsync --server -logDtpre.iLsfxCIvu . .", "is not below"),
    ("rsync --server -logDtpre.iLsfxCIvu . .ssh/", "is not below"),
    ("rsync --server -logDtpre.iLsfxCIvu . /", "is not below"),
    ("rsync --server -logDtpre.iLsfxCIvu . qcg-run/", "is not below"),
    ("rsync --server -logDtpre.iLsfxCIvu . qcg-run/r1/../../.ssh/", "no path"),
    ("rsync --server -logDtpre.iLsfxCIvu . qcg-run/r1/outside/", "is not below"),
    ("rsync --server -logDtpre.iLsfxCIvu . qcg-run/r1/outside/deeper/x", "is not below"),
    ("rsync --server --sender -logDtpre.iLsfxCIvu . qcg-run/r1/log /etc/passwd", "is not below"),
    ("rsync --server --sender -logDtpre.iLsfxCIvu . qcg-run/r1/outside", "is not below"),
    ("rsync --server --sender -logDtpre.iLsfxCIvu . qcg-run/r1/*", "unquoted *"),
    ("rsync --server --sender -slogDtpre.iLsfxCIvu", "--secluded-args"),
    ("rsync --server --sender -slogDtpre.iLsfxCIvu . qcg-run/r1/", "-slogDtpre.iLsfxCIvu is not admitted"),
    ("rsync --server -logDtpre.iLsfxCIvu --rsh=/tmp/x . qcg-run/r1/", "--rsh=/tmp/x is not admitted"),
    ("rsync --server -re /tmp/x . qcg-run/r1/", "-re is not admitted"),
    ("rsync --server -re/tmp/x . qcg-run/r1/", "is not admitted"),
    ("rsync --server -e.iLsfxCIvu/../x . qcg-run/r1/", "is not admitted"),
    ("rsync --server --rsync-path=/tmp/x -r . qcg-run/r1/", "is not admitted"),
    ("rsync --server --sender --remove-source-files -r . qcg-run/r1/", "--remove-source-files is not admitted"),
    ("rsync --server --sender --remove-sent-files -r . qcg-run/r1/", "is not admitted"),
    ("rsync --server --sender -rL . qcg-run/r1/", "-rL is not admitted"),
    ("rsync --server --sender -rk . qcg-run/r1/", "-rk is not admitted"),
    ("rsync --server --sender -r --copy-unsafe-links . qcg-run/r1/", "is not admitted"),
    ("rsync --server -rK . qcg-run/r1/", "-rK is not admitted"),
    ("rsync --server -rb --backup-dir=/tmp . qcg-run/r1/", "is not admitted"),
    ("rsync --server -r --temp-dir=/tmp . qcg-run/r1/", "is not admitted"),
    ("rsync --server -r --partial-dir=/tmp . qcg-run/r1/", "is not admitted"),
    ("rsync --server -r --log-file=.ssh/authorized_keys . qcg-run/r1/", "is not admitted"),
    ("rsync --server -r --link-dest=/etc . qcg-run/r1/", "is not admitted"),
    ("rsync --server -r --copy-dest=/etc . qcg-run/r1/", "is not admitted"),
    ("rsync --server --sender -r --files-from=/etc/passwd . qcg-run/r1/", "is not admitted"),
    ("rsync --server --sender -r --files-from - . qcg-run/r1/", "is not admitted"),
    (
        "rsync --server --sender -ltprRze.iLsfxCIvu --files-from=- --from0 . qcg-run/r1/",
        "--files-from=- is not admitted",
    ),
    ("rsync --server --sender -r --filter=merge\\ /etc/passwd . qcg-run/r1/", "is not admitted"),
    ("rsync --server -r --write-devices . qcg-run/r1/", "is not admitted"),
    ("rsync --server -r --no-implied-dirs . qcg-run/r1/", "is not admitted"),
    ("rsync --server -M--daemon . qcg-run/r1/", "is not admitted"),
    ("rsync --server -r . qcg-run/r1/ --daemon", "several to write to"),
    ("rsync --server --sender -r . qcg-run/r1/ --daemon", "an option follows"),
    ("rsync --server -r . --log-file=x", "an option follows"),
    ("rsync --server - . qcg-run/r1/", "is not admitted"),
    ("rsync --server --timeout=1;id . qcg-run/r1/", "unquoted ;"),
    ("rsync --server --timeout=1\\;id . qcg-run/r1/", "is not admitted"),
]


def sentence_of(call, *arguments):
    """The reason why the call refuses its arguments."""
    try:
        call(*arguments)
    except Refused as refused:
        return str(refused)
    raise AssertionError("admitted")


class GateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = os.path.realpath(folder.name)
        self.run_dir = os.path.join(self.home, "qcg-run", "r1")
        os.makedirs(os.path.join(self.run_dir, "log.1"))
        os.makedirs(os.path.join(self.home, ".ssh"))
        os.symlink("log.1", os.path.join(self.run_dir, "log"))
        os.symlink("log.1", os.path.join(self.run_dir, "inside"))
        os.symlink("../../.ssh", os.path.join(self.run_dir, "outside"))
        os.symlink("/etc", os.path.join(self.home, "qcg-run", "out"))
        os.symlink("loop", os.path.join(self.home, "loop"))
        os.symlink("../loop", os.path.join(self.home, "qcg-run", "loop"))
        self.policy = Policy("/opt/far.pyz", self.home, rsync=RSYNC)

    def decide(self, text, policy=None):
        return decide(text.replace("HOME", self.home), policy or self.policy)

    def sentence(self, text, policy=None):
        return sentence_of(self.decide, text, policy)

    def test_the_commands_of_a_run_are_admitted(self):
        for text, arguments in ADMITTED:
            with self.subTest(text):
                arguments = [word.replace("HOME", self.home) for word in arguments]
                command = self.decide(text.replace("$HOME", "$ME"))
                if "rsync" in text:
                    assert command == [RSYNC, "--server", *arguments]
                else:
                    arguments = [word.replace("$" + self.home, "$ME") for word in arguments]
                    assert command == [sys.executable, "/opt/far.pyz", *arguments]

    def test_everything_else_is_refused_with_the_reason(self):
        assert len(REFUSED) >= 60
        for text, part in REFUSED:
            with self.subTest(text[:200]):
                assert part in self.sentence(text)

    def test_a_link_in_place_of_the_directory_of_all_runs_is_followed(self):
        os.makedirs(os.path.join(self.home, "scratch", "r1"))
        os.symlink("scratch", os.path.join(self.home, "runs"))
        policy = self.policy._replace(directory="runs")
        assert self.decide(FAR + " jobs-poll runs/r1", policy)[-1] == "runs/r1"
        assert "is not below runs" in self.sentence(FAR + " jobs-poll qcg-run/r1", policy)

    def test_a_subset_can_be_admitted(self):
        policy = read_policy(["--admit", "jobs-poll,cat-log,rsync-out"], self.policy)
        self.decide(FAR + " jobs-poll qcg-run/r1", policy)
        self.decide("rsync --server --sender -re.i . qcg-run/r1/log/", policy)
        for text, name in (
            (FAR + " jobs-submit qcg-run/r1", "jobs-submit"),
            (FAR + " remote-serve qcg-run/r1", "remote-serve"),
            ("rsync --server -re.i . qcg-run/r1/", "rsync-in"),
        ):
            assert self.sentence(text, policy) == name + " is not admitted on this host"

    def test_single_sub_commands_can_be_left_out(self):
        policy = read_policy(["--refuse=remote-serve"], self.policy)
        assert policy.admitted == frozenset(gate.EVERYTHING) - {"remote-serve"}

    def test_the_far_side_can_have_another_name(self):
        policy = read_policy(["--command", "/opt/bin/far", "--command=env far"], self.policy)
        for name in ("/opt/bin/far", "env far", FAR):
            assert self.decide(name + " jobs-poll qcg-run/r1", policy)[1:3] == ["/opt/far.pyz", "jobs-poll"]
        assert "no command" in self.sentence("/opt/bin/far2 jobs-poll qcg-run/r1", policy)

    def test_a_gate_with_a_wrong_option_admits_nothing(self):
        for arguments, part in (
            (["--admit"], "needs a value"),
            (["--admit", "jobs-pol"], "'jobs-pol' is none of"),
            (["--admitt", "jobs-poll"], "no option"),
            (["--rsync", "rsync"], "no option"),
            (["--directory", "."], "holds"),
            (["--directory", "/"], "holds"),
            (["--directory", "/opt"], "holds /opt/far.pyz"),
        ):
            with self.subTest(arguments):
                sentence = sentence_of(read_policy, arguments, self.policy)
                assert "set up wrongly in authorized_keys" in sentence
                assert part in sentence

    def test_programs_get_no_variable_that_changes_what_they_do(self):
        unsafe = ("PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "RSYNC_RSH", "BASH_ENV", "ENV", "SSH_ORIGINAL_COMMAND")
        given = dict.fromkeys(unsafe, "/tmp/x")
        given.update({"LANG": "C.UTF-8", "HOME": "/elsewhere"})
        policy = self.policy._replace(admitted=frozenset(["jobs-poll", "remote-serve"]))
        assert environment(given, policy) == {
            "LANG": "C.UTF-8",
            "HOME": self.home,
            GATE_ADMITS: "jobs-poll,remote-serve",
        }

    def test_a_refused_command_is_logged_in_one_printable_line(self):
        log = os.path.join(self.home, ".qcg-pm", "gate.log")
        text = "id\nforged \x1b[2J \udc9b" + "x" * 5000
        assert refuse("no", text, log, {"SSH_CONNECTION": "10.0.0.7 5 10.0.0.1 22"}) == 126
        assert refuse("no", "", log, {}) == 126
        with open(log, encoding="ascii") as file:
            first, second = file.read().splitlines()
        assert re.search(r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ refused for 10\.0\.0\.7: id\\nforged \\x1b\[2J ", first)
        assert f"... ({len(text)} characters) (no)" in first
        assert re.search(r" refused for an unknown address: a login \(no\)$", second)
        assert os.stat(log).st_mode & 0o777 == 0o600

    def test_the_log_is_renamed_before_it_grows_without_limit(self):
        log = os.path.join(self.home, "gate.log")
        with open(log, "wb") as file:
            file.truncate(gate.LARGEST_LOG + 1)
        os.chmod(log, 0o600)
        refuse("no", "id", log, {})
        assert os.path.getsize(log) < 1000
        assert os.path.getsize(log + ".1") > gate.LARGEST_LOG

    def test_a_log_that_cannot_be_written_still_refuses(self):
        os.symlink("/etc/hosts", os.path.join(self.home, "link.log"))
        for log in ("/proc/nothing/gate.log", os.path.join(self.home, "link.log"), self.home):
            assert refuse("no", "id", log, {}) == 126

    def test_words_are_split_as_a_shell_splits_them(self):
        for text, words in (
            ("a  b\tc", ["a", "b", "c"]),
            ("a''b\"c\"\\ d", ["abc d"]),
            ("'a b' \"c'd\" 'e\"f'", ["a b", "c'd", 'e"f']),
            ('"a\\"b\\\\c\\$d\\e"', ['a"b\\c$d\\e']),
            ("'' \"\"", ["", ""]),
            ("a~b a#b", ["a~b", "a#b"]),
            ("", []),
        ):
            with self.subTest(text):
                assert split_words(text) == words

    def test_printable_text_has_no_character_that_a_terminal_obeys(self):
        assert printable("a\x9bb\u202ec") == "a\\x9bb\\u202ec"
