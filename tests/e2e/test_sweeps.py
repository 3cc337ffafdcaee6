"""Runs of jobs whose iterations come from files and named values."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from tests.e2e.test_resume import answered, begin
from tests.support.crashing import marking, waiting
from tests.support.pilot import job, run, run_requests
from tests.support.serving import served

SAY = ("/bin/sh", "-c", 'printf "%s|" "$@" >> said', "-")


def attempts(directory: Path) -> list[dict[str, str]]:
    table = run("qcg-pm", "report", "--csv", "-", cwd=directory).stdout
    return list(csv.DictReader(io.StringIO(table)))


def test_each_row_of_a_csv_file_is_an_iteration(tmp_path: Path):
    (tmp_path / "params.csv").write_text('T,note\n250,"a, ""b"" $HOME ${it}"\n300,"two\nlines"\n')
    done = run_requests(
        tmp_path,
        [job("sweep", *SAY, "${row.T}", "${row.note}", iteration={"file": "params.csv"}, wd="w${row.T}")],
    )
    assert done.done.returncode == 0, done.done.stderr
    assert (tmp_path / "w250/said").read_text() == '250|a, "b" $HOME ${it}|'
    assert (tmp_path / "w300/said").read_text() == "300|two\nlines|"
    assert done.report["sweep:1"]["itval"] == {"T": "300", "note": "two\nlines"}
    assert done.report["sweep:1"]["runtime"]["wd"] == str(tmp_path / "w300")


def test_values_of_every_json_type_keep_their_names_and_types_in_report_and_info(tmp_path: Path):
    values: list[Any] = ["x", 1, 2.5, True, None, [1, "a"], {"T": 300, "in": {"p": [1]}}]
    done = run_requests(
        tmp_path,
        [
            job("values", *SAY, "${itval}", iteration=values),
            job("product", *SAY, "${T}-${on}", iteration={"product": {"T": [1.5], "on": [True, None]}}),
            job("zip", *SAY, "${T}-${on}", iteration={"zip": {"T": [1, 2], "on": [{"k": 1}, "v"]}}),
        ],
    )
    assert [done.report[f"values:{index}"]["itval"] for index in range(7)] == values
    assert [done.report[f"product:{index}"]["itval"] for index in range(2)] == [
        {"T": 1.5, "on": True},
        {"T": 1.5, "on": None},
    ]
    info = json.loads(run("qcg-pm", "info", "-i", "zip", "values:6", "--json", cwd=tmp_path).stdout)
    assert [child["itval"] for child in info["zip"]["children"]] == [{"T": 1, "on": {"k": 1}}, {"T": 2, "on": "v"}]
    assert info["values:6"]["itval"] == {"T": 300, "in": {"p": [1]}}
    text = run("qcg-pm", "info", "values:5", "values:6", cwd=tmp_path).stdout
    assert '    itval: [1,"a"]\n' in text
    assert '    itval: T=300, in={"p":[1]}' in text


def test_iterations_with_listed_indices_wait_for_each_other_by_index(tmp_path: Path):
    done = run_requests(
        tmp_path,
        [
            job("first", "sh", "-c", "exit $((${it} == 7))", iteration={"indices": [31, 7, 133]}),
            job("second", "true", iteration={"indices": [133, 7]}, after=["first:${it}"]),
            job("third", "true", after=["first:31"]),
        ],
    )
    states = {name: state for name, state in done.states.items() if ":" in name or name == "third"}
    assert states == {
        "first:31": "SUCCEED",
        "first:7": "FAILED",
        "first:133": "SUCCEED",
        "second:133": "SUCCEED",
        "second:7": "OMITTED",
        "third": "SUCCEED",
    }
    listed = run("qcg-pm", "jobs", "first:*", "second:100-200", cwd=tmp_path).stdout.split()
    assert [word for word in listed if ":" in word] == ["first:31", "first:7", "first:133", "second:133"]


def test_a_file_that_is_edited_before_iterations_start_does_not_change_them(tmp_path: Path):
    (tmp_path / "params.csv").write_text("T\n250\n300\n350\n")
    done = run_requests(
        tmp_path,
        [
            job("edit", "sed", "-i", "s/250/9/", "params.csv"),
            job("sweep", "echo", "${row.T}", iteration={"file": "params.csv"}, after=["edit"], stdout="${row.T}.out"),
        ],
    )
    assert (tmp_path / "params.csv").read_text() == "T\n9\n300\n350\n"
    assert [done.states[f"sweep:{index}"] for index in range(3)] == ["SUCCEED"] * 3
    assert [(tmp_path / f"{value}.out").read_text() for value in (250, 300, 350)] == ["250\n", "300\n", "350\n"]
    assert done.report["sweep:0"]["itval"] == {"T": "250"}


def test_a_wrong_file_refuses_the_submission_with_file_and_line(tmp_path: Path):
    (tmp_path / "params.csv").write_text("T,p\n250,1\n300\n")
    done = run_requests(tmp_path, [job("sweep", "true", iteration={"file": "params.csv"})])
    assert done.done.returncode != 0
    problem = "params.csv, line 3: has 1 value; the file has 2 columns: T, p"
    assert f"request 1: jobs[0].iteration.file: {problem}" in done.done.stderr
    checked = run("qcg-pm", "validate", "requests.json", cwd=tmp_path)
    assert checked.returncode == 1
    assert problem in checked.stderr


def test_an_unknown_column_is_refused_before_anything_runs(tmp_path: Path):
    (tmp_path / "params.csv").write_text("temp,p\n250,1\n")
    jobs = [job("sweep", "echo", "${row.tmp} ${itval.x}", iteration={"file": "params.csv"}), job("other", "true")]
    problem = 'jobs[0]: params.csv has no column "tmp" for ${row.tmp}; did you mean "temp"?'
    done = run_requests(tmp_path, jobs)
    assert done.done.returncode == 1
    assert f"request 1: {problem}" in done.done.stderr
    assert attempts(tmp_path) == []
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    checked = run("qcg-pm", "validate", "jobs.json", cwd=tmp_path)
    assert checked.returncode == 1
    assert problem in checked.stderr
    with served(tmp_path, "--cores", "1"):
        each = run("qcg-pm", "submit", "--each", "params.csv", "--wait", "--", "echo", "${row.tmp}", cwd=tmp_path)
        assert each.returncode != 0
        assert 'params.csv has no column "tmp" for ${row.tmp}; did you mean "temp"?' in each.stderr
        assert json.loads(run("qcg-pm", "jobs", "--json", cwd=tmp_path).stdout)["jobs"] == {}


def test_validate_warns_about_unknown_members_and_missing_braces(tmp_path: Path):
    (tmp_path / "params.csv").write_text("temp,p\n250,1\n")
    jobs = [job("sweep", "echo", "${row.temp ${itval.x}", iteration={"file": "params.csv"})]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    checked = run("qcg-pm", "validate", "jobs.json", cwd=tmp_path)
    assert checked.returncode == 0
    assert "${row.temp has no closing brace and stays as it is; did you mean ${row.temp}?" in checked.stderr
    assert '${itval.x} stays as it is: params.csv has no column "x"; known here: temp, p' in checked.stderr


def test_rows_are_read_after_a_resume_and_changes_are_announced(tmp_path: Path):
    (tmp_path / "params.csv").write_text("T\n250\n300\n350\n")
    crashing = begin(
        tmp_path,
        [
            waiting("long", numCores=4),
            marking("sweep", "echo ${row.T} >> said", iteration={"file": "params.csv"}, after=["long"]),
        ],
    )
    answered(crashing, 1)
    crashing.pid_of("long")
    crashing.kill_manager()
    (tmp_path / "params.csv").write_text("T\n250\n999\n350\n400\n")
    (index,) = (crashing.run_dir / "rows").glob("*.index")
    assert index.stat().st_size == 3 * 16
    crashing.release()
    done = crashing.finish()
    assert (
        f"Job 'sweep': {tmp_path}/params.csv has changed since it was submitted; the run continues with the rows as"
        " they were submitted. To use the new rows for iterations that fail, give the job to --rerun failed --from"
        " FILE." in done.stderr
    )
    states = {name: entry["state"] for name, entry in crashing.entries().items()}
    assert [states[f"sweep:{index}"] for index in range(3)] == ["SUCCEED", "SUCCEED", "SUCCEED"]
    assert sorted((tmp_path / "said").read_text().split()) == ["250", "300", "350"]


def test_parameters_command_and_files_are_known_after_the_file_was_edited_or_removed(tmp_path: Path):
    (tmp_path / "params.csv").write_text("T\n250\n300\n")
    run_requests(tmp_path, [job("sweep", "echo", "${row.T}", iteration={"file": "params.csv"}, stdout="${row.T}.out")])

    def shown() -> tuple[str, list[str]]:
        info = run("qcg-pm", "info", "sweep:1", cwd=tmp_path).stdout
        assert "    itval: T=300\n" in info
        assert run("qcg-pm", "logs", "sweep:1", cwd=tmp_path).stdout == "300\n"
        return info, [row["parameters"] for row in attempts(tmp_path)]

    before = shown()
    assert before[1] == ['{"T":"250"}', '{"T":"300"}']
    (tmp_path / "params.csv").write_text("T\n7\n301\n")
    assert shown() == before
    (tmp_path / "params.csv").unlink()
    assert shown() == before


def test_files_of_an_iteration_whose_row_is_lost_are_unknown_and_the_reason_is_shown(tmp_path: Path):
    (tmp_path / "params.csv").write_text("T\n250\n300\n")
    run_requests(tmp_path, [job("sweep", "echo", "x", iteration={"file": "params.csv"}, stdout="${row.T}.out")])
    (copy,) = tmp_path.glob(".qcgpjm-*/rows/*.copy")
    copy.unlink()
    assert run("qcg-pm", "logs", "sweep:1", cwd=tmp_path).stdout == "x\n"
    (tmp_path / "params.csv").write_text("T\n250\n301\n")
    changed = f"row 1 of {tmp_path}/params.csv has changed since the job was submitted"
    logs = run("qcg-pm", "logs", "sweep:0", "sweep:1", cwd=tmp_path)
    assert "x\n" in logs.stdout
    assert f"the name of the stdout of job 'sweep:1' is not known any more: {changed}" in logs.stderr
    assert f"    itval: unknown, {changed}" in run("qcg-pm", "info", "sweep:1", cwd=tmp_path).stdout


def fails_twice(directory: Path) -> None:
    """Run a sweep of four iterations, of which 1 and 2 fail because of their rows."""
    (directory / "params.csv").write_text("T\n250\n-3\n-350\n400\n")
    sweep = job("sweep", "test", "${row.T}", "-gt", "0", iteration={"file": "params.csv"})
    assert run_requests(directory, [sweep]).done.returncode == 1


def test_only_failed_iterations_run_again_with_corrected_rows(tmp_path: Path):
    fails_twice(tmp_path)
    (tmp_path / "params.csv").write_text("T\n250\n300\n350\n400\n")
    resumed = ("qcg-pm", "run", "--resume", ".", "--rerun", "failed", "--from", "requests.json")
    again = run(*resumed, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "2 jobs and iterations are queued again" in again.stderr
    shown = [(row["name"], row["attempt"], row["state"], row["parameters"]) for row in attempts(tmp_path)]
    assert shown == [
        ("sweep:0", "1", "SUCCEED", '{"T":"250"}'),
        ("sweep:1", "1", "FAILED", '{"T":"-3"}'),
        ("sweep:1", "2", "SUCCEED", '{"T":"300"}'),
        ("sweep:2", "1", "FAILED", '{"T":"-350"}'),
        ("sweep:2", "2", "SUCCEED", '{"T":"350"}'),
        ("sweep:3", "1", "SUCCEED", '{"T":"400"}'),
    ]


def test_the_table_of_attempts_has_the_row_of_each_attempt_after_every_correction(tmp_path: Path):
    fails_twice(tmp_path)
    for rows in ("T\n250\n-4\n-350\n400\n", "T\n250\n5\n-350\n400\n"):
        (tmp_path / "params.csv").write_text(rows)
        run("qcg-pm", "run", "--resume", ".", "--rerun", "failed", "--from", "requests.json", cwd=tmp_path)
    # The same rows once more, in a file that is not changed.
    run("qcg-pm", "run", "--resume", ".", "--rerun", "failed", "--from", "requests.json", cwd=tmp_path)
    shown = [f"{row['name']} {row['attempt']} {row['parameters']}" for row in attempts(tmp_path)]
    assert shown == [
        'sweep:0 1 {"T":"250"}',
        'sweep:1 1 {"T":"-3"}',
        'sweep:1 2 {"T":"-4"}',
        'sweep:1 3 {"T":"5"}',
        *[f'sweep:2 {number} {{"T":"-350"}}' for number in (1, 2, 3, 4)],
        'sweep:3 1 {"T":"400"}',
    ]


def test_new_rows_of_iterations_that_do_not_run_again_are_refused(tmp_path: Path):
    fails_twice(tmp_path)
    before = attempts(tmp_path)
    resumed = ("qcg-pm", "run", "--resume", ".", "--rerun", "failed", "--from", "requests.json")
    for rows in ("T\n250\n300\n350\n401\n", "T,p\n250,1\n-3,1\n-350,1\n400,1\n"):
        (tmp_path / "params.csv").write_text(rows)
        refused = run(*resumed, cwd=tmp_path)
        assert refused.returncode == 2
        position = 3 if "401" in rows else 0
        assert refused.stderr == (
            f"Error: --from: row {position} of {tmp_path}/params.csv has changed, and sweep:{position}, which is"
            " SUCCEED with the old row, does not run again; change only rows of iterations that run again, or submit"
            " the new rows as a new job\n"
        )
        assert attempts(tmp_path) == before


def test_a_running_manager_refuses_new_rows_of_iterations_that_were_not_named(tmp_path: Path):
    (tmp_path / "params.csv").write_text("T\n-1\n-2\n")
    sweep = job("sweep", "test", "${row.T}", "-gt", "0", iteration={"file": "params.csv"})
    with served(tmp_path, "--cores", "1") as service:
        service.submit(sweep)
        service.wait("sweep", "FAILED")
        (tmp_path / "params.csv").write_text("T\n1\n2\n")
        (tmp_path / "new.json").write_text(json.dumps([sweep]))
        refused = run("qcg-pm", "rerun", "sweep:0", "--from", "new.json", cwd=tmp_path)
        assert refused.returncode != 0
        assert f"row 1 of {tmp_path}/params.csv has changed, and sweep:1, which is FAILED" in refused.stderr
        (tmp_path / "params.csv").write_text("T\n1\n-2\n")
        assert run("qcg-pm", "rerun", "sweep:0", "--from", "new.json", cwd=tmp_path).returncode == 0
        service.wait("sweep:0", "SUCCEED")


def test_a_sweep_from_the_command_line_runs_again_with_the_corrected_rows_of_its_file(tmp_path: Path):
    (tmp_path / "params.csv").write_text("T,p\n1,1\n-2,1\n")

    def rerun(*words: str) -> tuple[int, str, str]:
        done = run("qcg-pm", "rerun", "--failed", "sweep", *words, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    with served(tmp_path, "--cores", "1") as service:
        words = ("--name", "sweep", "--each", "params.csv", "--wait", "--", "test", "${row.T}", "-gt", "0")
        assert run("qcg-pm", "submit", *words, cwd=tmp_path).returncode == 1
        again = (0, "1 job or iteration is queued again\n")
        assert rerun() == (*again, "")
        service.wait("sweep", "FAILED")
        unchanged = "Warning: no parameter file of these jobs has changed; they run again with the same rows\n"
        assert rerun("--reread") == (*again, unchanged)
        service.wait("sweep", "FAILED")
        (tmp_path / "params.csv").write_text("T,p\n1,1\n2,1\n")
        assert rerun() == (
            *again,
            f"Warning: job 'sweep': {tmp_path}/params.csv has changed since it was submitted; it runs again with the"
            " rows as they were submitted. To use the new rows for iterations that fail: qcg-pm rerun --failed"
            " --reread sweep\n",
        )
        service.wait("sweep", "FAILED")
        for rows, problem in (
            ("T,p\n1,1\n", f"{tmp_path}/params.csv has 1 row, and had 2 when the job was submitted"),
            ("T,p\n3,1\n2,1\n", f"row 0 of {tmp_path}/params.csv has changed, and sweep:0, which is SUCCEED"),
            ("t,p\n1,1\n2,1\n", 'params.csv has no column "T" for ${row.T}; did you mean "t"?'),
            ("T,p\n1,1\n2\n", "line 3: has 1 value; the file has 2 columns: T, p"),
        ):
            (tmp_path / "params.csv").write_text(rows)
            code, _, refused = rerun("--reread")
            assert (code != 0, problem in refused) == (True, True), refused
        (tmp_path / "params.csv").unlink()
        assert "params.csv cannot be read: No such file or directory" in rerun("--reread")[2]
        (tmp_path / "params.csv").write_text("T,p\n1,1\n2,1\n")
        assert rerun("--reread") == (*again, "")
        service.wait("sweep", "SUCCEED")
    shown = [f"{row['name']} {row['attempt']} {row['parameters']}" for row in attempts(tmp_path)]
    old = [f'sweep:1 {number} {{"T":"-2","p":"1"}}' for number in (1, 2, 3, 4)]
    assert shown == ['sweep:0 1 {"T":"1","p":"1"}', *old, 'sweep:1 5 {"T":"2","p":"1"}']
