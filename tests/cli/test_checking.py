"""validate and schema, which start no jobs, and the forms of command lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from qcg.pilotjob.cli.main import main
from qcg.pilotjob.cli.node_list import join_node_list
from tests.support.pilot import WAIT, job, run, write_requests

SAMPLES = Path(__file__).parent.parent / "e2e/samples"


def qcg_pm(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def validate(tmp_path: Path, *requests: Any, options: tuple[str, ...] = ("--nodes", "4")) -> Result:
    return qcg_pm("validate", write_requests(tmp_path / "r.json", *requests), *options)


def test_validate_accepts_a_valid_file(tmp_path: Path):
    done = validate(tmp_path, [job("a", "true"), job("b", "true", after=["a"])], WAIT)
    assert done.exit_code == 0
    assert done.stderr == ""
    assert done.stdout.startswith(f"{tmp_path}/r.json: 2 requests, 2 jobs, 0 problems")
    assert qcg_pm("validate", SAMPLES / "bac16.json", "--nodes", "28,28,28,28").exit_code == 0


def test_validate_checks_jobs_of_remote_hosts_against_hosts_toml(tmp_path: Path):
    (tmp_path / "hosts.toml").write_text("[wizard]\ncores = 2\n")
    options = ("--nodes", "4", "--hosts", str(tmp_path / "hosts.toml"))
    jobs = [{"name": name, "exec": "true", "host": host, "numCores": cores} for name, host, cores in JOBS_OF_HOSTS]
    done = validate(tmp_path, jobs[:1], jobs[1:2], jobs[2:], options=options)
    assert done.exit_code == 1
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["request 2", "request 3"]
    assert 'did you mean "wizard"?' in done.stderr
    assert "3 cores requested" in done.stderr


JOBS_OF_HOSTS = [("fits", "wizard", 2), ("misspelt", "wisard", 1), ("wide", "wizard", 3)]


def test_validate_shows_all_problems_with_their_positions(tmp_path: Path):
    done = validate(
        tmp_path,
        [
            {"name": "a", "execution": {"exec": "true", "arg": []}},
            {"name": "b c", "execution": {"exec": "true", "script": "x"}},
            {"name": "d", "execution": {"exec": "true"}, "resources": {"numCores": {"exact": 1, "min": 2}}},
        ],
        {"request": "sumbit"},
        [job("e", "true", after=["nobody"]), job("f", "true", after=["g"]), job("g", "true", after=["f"])],
        [job("wide", "true", numCores=5), job("gpu", "true", nodeCrs={"gpu": 1})],
        {"request": "jobStatus"},
    )
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    for place, said in [
        ("request 1: jobs[0].execution.arg", 'did you mean "args"?'),
        ("request 1: jobs[1].name", "b c"),
        ("request 1: jobs[1].execution", "exec"),
        ("request 1: jobs[2].resources.numCores", "exact"),
        ("request 2", 'did you mean "submit"?'),
        ("request 3", "nobody"),
        ("request 3", "f -> g"),
        ("request 4", "'wide' can never run: 5 cores requested, but only 4 exist"),
        ("request 4", "'gpu' can never run"),
        ("request 5", "jobNames"),
    ]:
        assert any(line.startswith(place) and said in line for line in lines), (place, said, lines)
    assert f"5 requests, 8 jobs, {len(lines)} problems" in done.stdout
    assert "Traceback" not in done.output


def test_validate_warns_about_repeated_keys(tmp_path: Path):
    text = '[{"request": "submit", "jobs": [{"name": "a", "name": "b", "execution": {"exec": "x", "exec": "true"}}]}]'
    (tmp_path / "r.json").write_text(text)
    done = qcg_pm("validate", tmp_path / "r.json", "--nodes", "4")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        'Warning: request 1: jobs[0]: the key "name" is given more than once, and only the last one counts',
        'Warning: request 1: jobs[0].execution: the key "exec" is given more than once, and only the last one counts',
    ]
    assert done.stdout.endswith("1 request, 1 job, 0 problems, 2 warnings; checked against 4 cores on 1 node\n")


def test_validate_warns_about_probable_mistakes(tmp_path: Path):
    done = validate(tmp_path, [job("a", "true", iteration=9, stdout="out"), job("b", "echo", "${it}")])
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "Warning: request 1: job 'a': all 9 iterations write their stdout to the same file, \"out\"; put ${it} into its"
        " name",
        "Warning: request 1: job 'b': ${it} has no value in a job without iterations; give the job an \"iteration\"",
    ]
    assert "1 request, 2 jobs, 0 problems, 2 warnings; checked against" in done.stdout


def test_validate_warns_about_arguments_in_one_string(tmp_path: Path):
    jobs = [
        {"name": "several", "exec": "echo", "args": "-n hello"},
        {"name": "one", "exec": "echo", "args": "hello "},
        {"name": "list", "exec": "echo", "args": ["hello world"]},
        job("standard", "echo", "hello world"),
    ]
    done = validate(tmp_path, jobs)
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        'Warning: request 1: jobs[0].args: "-n hello" is one argument with blanks in it; write a list for several'
    ]


def test_validate_warns_about_programs_and_inputs_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").touch(mode=0o644)
    (tmp_path / "below").mkdir()
    jobs = [
        job("directory", "./below"),
        job("plain", "./p.csv"),
        job("input", "true", stdin="in"),
        job("environment", "true", venv="env"),
        job("there", "true", stdin="p.csv"),
        job("made", "true", stdin="made", after=["input"]),
        job("each", "true", iteration=2, stdin="${it}"),
    ]
    done = validate(tmp_path, jobs)
    assert done.stderr.splitlines() == [
        "Warning: request 1: job 'directory': the program \"./below\" is a directory",
        "Warning: request 1: job 'plain': the program \"./p.csv\" is not executable; chmod +x makes it so",
        f"Warning: request 1: job 'input': stdin \"in\" does not exist ({tmp_path}/in)",
        f"Warning: request 1: job 'environment': venv \"env\" does not exist ({tmp_path}/env)",
    ]


def test_validate_warns_about_each_program_that_does_not_exist_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for place in ("bin/solver3", "below/model.py"):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{tmp_path}/missing")
    jobs = [
        job("there", "solver3"),
        job("misspelt", "slover3", iteration=2),
        job("again", "slover3"),
        job("unlike", "gzip"),
        job("relative", "./modle.py", wd="below"),
        job("elsewhere", "./model.py"),
        job("found", "./model.py", wd=f"{tmp_path}/below"),
    ]
    done = validate(tmp_path, jobs, [job("later", "slover3")])
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        'Warning: request 1: job \'misspelt\': the program "slover3" was not found here; did you mean "solver3"?',
        "Warning: request 1: job 'unlike': the program \"gzip\" was not found here",
        'Warning: request 1: job \'relative\': the program "./modle.py" was not found here; did you mean "./model.py"?',
        "Warning: request 1: job 'elsewhere': the program \"./model.py\" was not found here",
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {"exec": "absent", "modules": ["absent"]},
        {"exec": "absent", "venv": "/"},
        {"exec": "absent", "env": {"PATH": "/opt/absent/bin"}},
        {"exec": "absent-${ncores}"},
        {"exec": "./absent", "wd": "run-${root_wd}"},
        {"exec": "./made", "after": ["make"]},
        {"exec": "./made", "afterany": ["make"]},
        {"script": "absent"},
        {"exec": "absent", "host": "wizard"},
    ],
)
def test_validate_searches_no_program_that_may_come_from_elsewhere(tmp_path: Path, keys: dict[str, Any]):
    (tmp_path / "hosts.toml").write_text("[wizard]\ncores = 2\n")
    jobs = [job("make", "true"), {"name": "a", **keys}]
    done = validate(tmp_path, jobs, options=("--nodes", "4", "--hosts", str(tmp_path / "hosts.toml")))
    assert (done.exit_code, done.stderr) == (0, "")


def test_validate_warns_about_a_shell_line_as_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "below").mkdir()
    for place in ("my prog", "below/my prog"):
        (tmp_path / place).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    jobs = [
        job("line", "echo hello"),
        job("path", "./prog -x", wd="below"),
        job("there", f"{tmp_path}/my prog"),
        job("relative", "./my prog", wd="below"),
        job("on-path", "my prog"),
        job("later", "./${jname} ${ncores}", wd="${root_wd}"),
    ]
    done = validate(tmp_path, jobs)
    assert done.exit_code == 0
    instead = "put a shell command into script, or the program into exec and its arguments into args"
    assert done.stderr.splitlines() == [
        f"Warning: request 1: job 'line': there is no program \"echo hello\"; {instead}",
        f"Warning: request 1: job 'path': there is no program \"./prog -x\"; {instead}",
    ]


def test_validate_does_not_warn_without_end(tmp_path: Path):
    done = validate(tmp_path, [job(f"j{number}", "echo", "${it}") for number in range(60)])
    lines = done.stderr.splitlines()
    assert len(lines) == 51
    assert lines[-1] == "... and 10 more warnings, most likely of the same kind."
    done = validate(tmp_path, [job(f"j{number}", "echo", "${it}") for number in range(51)])
    assert done.stderr.splitlines()[-1] == "... and 1 more warning, most likely of the same kind."


def test_validate_reads_standard_input():
    done = CliRunner().invoke(main, ["validate", "-"], input=json.dumps([[]]))
    assert (done.exit_code, done.stderr) == (1, 'request 1: a request must be an object with the key "request"\n')


def test_run_does_not_read_standard_input(tmp_path: Path):
    done = CliRunner().invoke(main, ["run", "-", "--wd", str(tmp_path)], input="[]")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: requests to run are not read from standard input, because --resume may need")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["x", "", "nan", "inf", "1,5"])
@pytest.mark.parametrize("option", ["--patience", "--agent-linger", "--node-timeout", "--grace"])
def test_a_value_that_is_no_number_is_refused(option: str, given: str):
    done = qcg_pm("run", "r.json", option, given)
    assert done.exit_code == 2
    assert f"'{option}': {given!r} is not a number; write it in digits, such as 60 or 0.5" in done.stderr


@pytest.mark.parametrize("command", ["submit", "set"])
def test_a_priority_that_is_no_whole_number_is_refused(command: str):
    done = qcg_pm(command, "a", "--priority", "high")
    assert done.exit_code == 2
    assert "'--priority': 'high' is not a whole number; write it in digits, such as 10" in done.stderr


@pytest.mark.parametrize("command", ["submit", "set"])
def test_the_help_names_the_bounds_of_a_priority(command: str):
    assert "[-2147483647<=x<=2147483647]" in qcg_pm(command, "--help").stdout


def test_an_age_of_runs_that_is_no_duration_is_refused():
    done = qcg_pm("clean", "--older-than=-1")
    assert done.exit_code == 2
    assert '"-1" is not a duration; write it as 1h30m' in done.stderr


@pytest.mark.parametrize(("command", "option"), [("submit", "--iteration"), ("logs", "--lines")])
@pytest.mark.parametrize("given", ["x", "", "2.5"])
def test_a_value_that_is_no_whole_number_is_refused(command: str, option: str, given: str):
    done = qcg_pm(command, "a", option, given)
    assert done.exit_code == 2
    assert f"{given!r} is not a whole number; write it in digits, such as 60" in done.stderr


def test_a_number_of_iterations_is_within_its_range():
    assert "0 is not in the range x>=1" in qcg_pm("submit", "--iteration", "0", "--", "true").stderr


def test_validate_refuses_unreadable_files(tmp_path: Path):
    (tmp_path / "bad.json").write_text("[")
    for arguments in (
        (tmp_path / "missing.json",),
        (tmp_path / "bad.json",),
        (tmp_path,),
        (SAMPLES / "msleep2.json", "--nodes", "x"),
    ):
        done = qcg_pm("validate", *arguments)
        assert done.exit_code == 2
        assert done.stderr.startswith("Error: ")


def test_many_jobs_are_validated_quickly(tmp_path: Path):
    done = validate(tmp_path, [job(f"j{number}", "true") for number in range(50_000)])
    assert done.exit_code == 0
    assert "50000 jobs" in done.stdout


def test_the_schema_accepts_the_samples_and_refuses_mistakes():
    schema = json.loads(qcg_pm("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    for sample in ("msleep2.json", "bac16.json"):
        jsonschema.validate(json.loads((SAMPLES / sample).read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{"request": "submit", "jobs": [{"name": "a", "execution": {"exce": "x"}}]}], schema)


def test_help_and_version_are_printed():
    for arguments in (("--help",), ("-h",), ("run", "--help"), ("validate", "--help"), ("--version",)):
        done = qcg_pm(*arguments)
        assert done.exit_code == 0
        assert done.stdout


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        (["--nodes", "n1:4,", "n2:4"], ["--nodes", "n1:4,n2:4"]),
        (["--nodes", "n1:4,", "n2:4,", "n3:4", "--net"], ["--nodes", "n1:4,n2:4,n3:4", "--net"]),
        (["--nodes=n1:4,", "n2:4"], ["--nodes=n1:4,n2:4"]),
        (["--nodes", "n1:4", ",", "n2:4"], ["--nodes", "n1:4,n2:4"]),
        (["--nodes", "n1:4", ",n2:4", "x"], ["--nodes", "n1:4,n2:4", "x"]),
        (["--nodes", "4", "file.json"], ["--nodes", "4", "file.json"]),
        (["--id", "a,", "b"], ["--id", "a,", "b"]),
        (["--nodes"], ["--nodes"]),
        ([], []),
    ],
)
def test_a_list_of_nodes_needs_no_quotes(given: list[str], joined: list[str]):
    assert join_node_list(given) == joined


def test_an_array_of_jobs_is_one_submission(tmp_path: Path):
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps([job("a", "true"), {"name": "b", "exec": "true", "after": "a"}]))
    done = qcg_pm("validate", path, "--nodes", "1")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "1 request, 2 jobs, 0 problems" in done.stdout
    path.write_text(json.dumps([{"name": "a", "exe": "true"}]))
    done = qcg_pm("validate", path, "--nodes", "1")
    assert (done.exit_code, done.stderr) == (1, 'request 1: jobs[0].exe: unknown key; did you mean "exec"?\n')


def test_a_misspelt_variable_is_a_warning(tmp_path: Path):
    path = tmp_path / "jobs.json"
    jobs = [job("a", "echo", "${itt}", iteration=2), job("b", "echo", "${itval.x}", iteration=[{"y": 1}])]
    path.write_text(json.dumps(jobs))
    done = qcg_pm("validate", path, "--nodes", "1")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "Warning: request 1: job 'a': ${itt} is no variable and stays as it is; did you mean ${it}?",
        "Warning: request 1: job 'b': ${itval.x} stays as it is: no value has \"x\"; known here: y",
    ]


def test_a_file_with_one_request_is_a_request_file(tmp_path: Path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"request": "submit", "jobs": [job("a", "true")]}, indent=2))
    done = qcg_pm("validate", path, "--nodes", "1")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "1 request, 1 job, 0 problems" in done.stdout


def test_a_number_with_thousands_of_digits_is_a_problem(tmp_path: Path):
    path = tmp_path / "digits.json"
    path.write_text(f'[{{"request": "submit", "jobs": [{{"name": "a", "exec": "x", "numCores": {"9" * 5000}}}]}}]')
    done = qcg_pm("validate", path, "--nodes", "1")
    assert done.exit_code == 1
    assert done.stderr == "request 1: jobs[0]: the job holds a number with too many digits; write it as a string\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([{"exec": "true"}], 'request 1: jobs[0]: the key "name" is missing'),
        ([job("a", "true"), {"script": "true"}], 'request 1: jobs[1]: the key "name" is missing'),
        ([{"jobs": [job("a", "true")]}], 'request 1: the key "request" is missing; to submit jobs, write {"request": '),
        ([WAIT, job("a", "true")], 'request 2: the key "request" is missing; to submit jobs, write {"request": "sub'),
    ],
)
def test_jobs_in_place_of_requests_are_an_error_that_mentions_submit(tmp_path: Path, content: Any, told: str):
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(content))
    done = qcg_pm("validate", path, "--nodes", "1")
    assert done.exit_code == 1
    assert done.stderr.startswith(told)
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_command_is_an_error_with_a_similar_command():
    done = qcg_pm("statsu")
    assert done.exit_code == 2
    assert "There is no command 'statsu'; did you mean 'status'?" in done.stderr
    assert "There is no command 'xyz'." in qcg_pm("xyz").stderr


def test_the_unknown_command_resume_is_an_error_that_mentions_the_option():
    done = qcg_pm("resume", ".")
    assert done.exit_code == 2
    assert "There is no command 'resume'; to continue a run: qcg-pm run --resume DIR, or" in done.stderr


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (("qcg-pm", "run", "r.json", "--node", "4"), "--node; did you mean --nodes?"),
        (
            ("qcg-pm", "run", "r.json", "--report-fo", "x"),
            "--report-fo; did you mean --report-format or --report-file?",
        ),
        (("qcg-pm", "run", "r.json", "--colour"), "--colour"),
        (("qcg-pm", "run", "r.json", "-x"), "-x"),
        (
            ("qcg-pm", "submit", "--core", "4", "true"),
            "--core; did you mean --cores? (to submit a program, put -- before it: qcg-pm submit -- PROGRAM ARGS)",
        ),
        (("qcg-pm", "submit", "--array=1-10", "--", "true"), "--array; did you mean --iteration?"),
        (("qcg-pm", "submit", "-n", "4", "--", "true"), "-n; did you mean --cores?"),
        (("qcg-pm", "--versoin"), "--versoin; did you mean --version?"),
        (("qcg-pm-service", "--nett"), "--nett; did you mean --net?"),
        (("qcg-pm", "set", "--prio", "3", "sim"), "--prio; did you mean --priority?"),
        (("qcg-pm", "set", "--pr", "3", "sim"), "--pr"),
        (("qcg-pm-client", "--node", "4", "p.py"), "--node; did you mean --nodes?"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_an_unknown_option_is_an_error_with_similar_options_only(line: tuple[str, ...], told: str):
    done = run(*line)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"Error: No such option {told}"


def test_the_error_for_a_program_with_options_mentions_two_dashes():
    done = qcg_pm("submit", "ls", "-l")
    assert done.exit_code == 2
    assert "No such option" in done.stderr
    assert "put -- before it: qcg-pm submit -- PROGRAM ARGS" in done.stderr


@pytest.mark.parametrize("option", ["--id", "--wd"])
def test_options_of_new_runs_are_refused_with_resume(option: str, tmp_path: Path):
    (tmp_path / ".qcgpjm-service-x").mkdir()
    done = qcg_pm("run", "r.json", "--resume", tmp_path, option, "other")
    assert done.exit_code == 2
    assert f"{option} is for a new run" in done.stderr


@pytest.mark.parametrize(
    ("where", "wanted"), [("numGpus", {"exec": "true", "numGpus": 1}), ("resources.gpus", {"resources": {"gpus": 2}})]
)
def test_a_wrong_key_for_gpus_is_an_error_with_the_right_one(where: str, wanted: dict[str, Any], tmp_path: Path):
    description = {"name": "a", **wanted} if "exec" in wanted else {**job("a", "true"), **wanted}
    done = validate(tmp_path, [job("b", "true"), description])
    said = f'request 1: jobs[1].{where}: unknown key; GPUs are asked for with "nodeCrs": {{"gpu": 1}}'
    assert done.stderr.splitlines()[0].startswith(said)
    assert "1 request, 2 jobs, 1 problem" in done.stdout


@pytest.mark.parametrize(
    ("options", "against"),
    [
        (("--cores", "4"), "4 cores on 1 node"),
        (("--nodes", "4"), "4 cores on 1 node"),
        (("--nodes", "2x4"), "8 cores on 2 nodes"),
    ],
)
def test_cores_and_nodes_give_the_virtual_nodes_to_check_against(
    options: tuple[str, ...], against: str, tmp_path: Path
):
    done = validate(tmp_path, [job("a", "true")], options=options)
    assert done.stdout.rstrip().endswith(f"checked against {against}")


@pytest.mark.parametrize("command", ["run", "validate", "bench"])
def test_cores_and_nodes_together_are_refused(command: str, tmp_path: Path):
    file = [] if command == "bench" else [write_requests(tmp_path / "r.json", [job("a", "true")])]
    done = qcg_pm(command, *file, "--cores", "4", "--nodes", "2x4")
    assert done.exit_code == 2
    assert "give --cores or --nodes, not both" in done.stderr


@pytest.mark.parametrize("command", ["run", "sbatch", "submit", "bench", "validate"])
def test_the_help_says_what_a_number_of_nodes_means(command: str):
    text = " ".join(qcg_pm(command, "--help").stdout.split())
    assert "four nodes" in text or "four whole nodes" in text or "one node with four cores" in text
