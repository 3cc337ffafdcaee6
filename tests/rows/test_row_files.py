"""Parameter files: CSV and JSON lines, their problems, and changes after submission."""

from __future__ import annotations

import csv
import io
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from qcg.pilotjob.description.iteration import RowError, RowFile
from qcg.pilotjob.rows import scan
from qcg.pilotjob.rows.index import ROWS_PER_BLOCK
from qcg.pilotjob.rows.scan import LONGEST_ROW
from qcg.pilotjob.rows.store import RowFiles
from tests.support.tiers import per_tier


@pytest.fixture
def files(tmp_path: Path) -> RowFiles:
    return RowFiles(str(tmp_path), str(tmp_path / "rows"), builds=True)


def write(directory: Path, content: str | bytes, name: str = "params.csv") -> Path:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def accepted(files: RowFiles, name: str = "params.csv") -> RowFile:
    file = files.read(name)
    assert isinstance(file, RowFile), file
    return file


def rows_of(files: RowFiles, file: RowFile) -> list[dict[str, Any]]:
    return [files.row(file, position) for position in range(file.rows)]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("T,p\n250,1\n300,2\n", [{"T": "250", "p": "1"}, {"T": "300", "p": "2"}]),
        ("T,p\n250,1\n300,2", [{"T": "250", "p": "1"}, {"T": "300", "p": "2"}]),
        ("T,p\r\n250,1\r\n300,2\r\n", [{"T": "250", "p": "1"}, {"T": "300", "p": "2"}]),
        ("\ufeffT,p\n250,1\n", [{"T": "250", "p": "1"}]),
        ("T , p\n250 , 1\n", [{"T": "250 ", "p": " 1"}]),
        ("T\n250\n\n300\n\n", [{"T": "250"}, {"T": "300"}]),
        (',T\n0,250\n1,"300"\n', [{"T": "250"}, {"T": "300"}]),
        ('T,p\n"250","a, ""b"""\n', [{"T": "250", "p": 'a, "b"'}]),
        ('T,p\n"x\n\ny",1\n2,"z\r\n"\n', [{"T": "x\n\ny", "p": "1"}, {"T": "2", "p": "z\r\n"}]),
        ('"T\n1",p\n1,2\n', [{"T\n1": "1", "p": "2"}]),
        ("Größe\n5 µm\n", [{"Größe": "5 µm"}]),
        ("a,b\n,\n", [{"a": "", "b": ""}]),
        ('a,b\n1,2\n"3",4\n5,6\n', [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}, {"a": "5", "b": "6"}]),
    ],
)
def test_csv_rows_are_read_by_name(tmp_path: Path, files: RowFiles, content: str, rows: list[Any]) -> None:
    write(tmp_path, content)
    file = accepted(files)
    assert rows_of(files, file) == rows
    assert file.columns[-1:] == tuple(rows[0])[-1:]


@pytest.mark.parametrize(
    ("content", "padded"),
    [
        ("T,p\n250,1\n", ""),
        ("T, p\n250,1\n", ""),
        ("T, p\n250, 1\n", "p"),
        ('T, p\n"250 ",1\n', "T"),
        ("T,p\r\n250,1\r\n", ""),
        ("T,p\r\n250,1 \r\n", "p"),
        ("T,p\n\n250, 1", "p"),
    ],
)
def test_blanks_around_values_of_the_first_row_are_noted(
    tmp_path: Path, files: RowFiles, content: str, padded: str
) -> None:
    write(tmp_path, content)
    assert accepted(files).padded == padded


def test_rows_of_json_lines_keep_their_types(tmp_path: Path, files: RowFiles) -> None:
    write(tmp_path, '{"T": 250.5, "on": true, "x": [1]}\n\n{"x": null, "on": "ä", "T": {"k": 1}}\r\n', "p.jsonl")
    assert rows_of(files, accepted(files, "p.jsonl")) == [
        {"T": 250.5, "on": True, "x": [1]},
        {"T": {"k": 1}, "on": "ä", "x": None},
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("T,p\n250,1\n300\n", "params.csv, line 3: has 1 value; the file has 2 columns: T, p"),
        ("T,p\n250,1,7\n", "params.csv, line 2: has 3 values; the file has 2 columns: T, p"),
        ('T,p\n"250",1,"7"\n', "params.csv, line 2: has 3 values; the file has 2 columns: T, p"),
        ('T,p\n1,2\n"a\nb",1\n3\n', "params.csv, line 5: has 1 value; the file has 2 columns: T, p"),
        ('T,p\n1,2\n3,6"\n4,5\n', "params.csv, line 3: a quote or a line break is out of place"),
        ('T,p\n1,2\n3,a"b"c\n4,5\n', "params.csv, line 3: a quote or a line break is out of place"),
        ('T,p\n"1"x,2\n', "params.csv, line 2: a quote or a line break is out of place"),
        ('T,p\n1,2\n3,"6\n4,5\n', "params.csv, line 3: a quote is not closed"),
        ("T,p\n1,2\r3,4\n", "params.csv, line 2: a quote or a line break is out of place"),
        (b"T,p\n1,2\n3,\xe4\n", "params.csv, line 3: is not UTF-8 text: the byte 0xe4 is not valid"),
        (b"T,p\n1,2\n3,\0\n", "params.csv, line 3: holds a NUL character"),
        ("", "params.csv: there is no row in it"),
        ("T,p\n", "params.csv: there is no row in it after the names"),
        ("T,T\n1,2\n", 'params.csv, line 1: the column "T" is there twice'),
        (",\n1,2\n", "params.csv, line 1: the first line must have the names of the columns"),
        ("T;p\n1;2\n", "params.csv, line 1: the columns must be separated by commas"),
        ("T\n" + "x" * (LONGEST_ROW + 1) + "\n1\n", f"params.csv, line 2: the row is longer than {LONGEST_ROW} bytes"),
        ('T\n"' + "x\n" * LONGEST_ROW, f"params.csv, line 2: the row is longer than {LONGEST_ROW} bytes"),
    ],
)
def test_a_wrong_row_is_reported_with_file_and_line(
    tmp_path: Path, files: RowFiles, content: str | bytes, problem: str
) -> None:
    write(tmp_path, content)
    found = files.read("params.csv")
    assert isinstance(found, list)
    assert found[0].startswith(problem)
    assert list((tmp_path / "rows").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"T": 1}\n{"p": 1}\n', 'p.jsonl, line 2: has no "T", as the first row has'),
        ('{"T": 1}\n{"T": 1, "p": 2}\n', 'p.jsonl, line 2: has "p", which the first row has not'),
        ('{"T": 1}\n[1]\n', 'p.jsonl, line 2: must be an object, such as {"T": 300, "p": 1}'),
        ('{"T": 1}\n{"T": 1\n', "p.jsonl, line 2: it is not valid JSON"),
        ('{"T": "a\\u0000"}\n', "p.jsonl, line 1: holds a NUL character"),
        ('{"T": 1}\n{"T": "a\\u0000"}\n', "p.jsonl, line 2: holds a NUL character"),
        ("{}\n", "p.jsonl, line 1: the object has no keys"),
        (b'{"T": "\xff"}\n', "p.jsonl, line 1: is not UTF-8 text"),
    ],
)
def test_a_wrong_line_of_json_is_reported_with_file_and_line(
    tmp_path: Path, files: RowFiles, content: str | bytes, problem: str
) -> None:
    write(tmp_path, content, "p.jsonl")
    found = files.read("p.jsonl")
    assert isinstance(found, list)
    assert found[0].startswith(problem)


def test_the_first_ten_problems_are_reported(tmp_path: Path, files: RowFiles) -> None:
    write(tmp_path, "T,p\n" + "1\n" * 5000)
    found = files.read("params.csv")
    assert isinstance(found, list)
    assert [sentence.partition(":")[0] for sentence in found] == [
        *[f"params.csv, line {line}" for line in range(2, 12)],
        "params.csv",
    ]
    assert found[-1] == "params.csv: the rest was not checked"


def test_a_problem_after_many_rows_has_the_right_line(tmp_path: Path, files: RowFiles) -> None:
    write(tmp_path, "T,p\n" + "1,2\n" * 200_000 + '"a\nb",2\n' * 100_000 + "7\n")
    assert files.read("params.csv") == ["params.csv, line 400002: has 1 value; the file has 2 columns: T, p"]


def test_rows_are_found_in_a_file_with_every_kind_of_row(tmp_path: Path, files: RowFiles) -> None:
    rows = [
        {"i": str(i), "text": ("plain", 'a "quote"', "two\nlines", "ü" * 50, "")[i // 3000 % 5]}
        for i in range(5 * ROWS_PER_BLOCK)
    ]
    lines = ["i,text"]
    for row in rows:
        text = row["text"].replace('"', '""')
        lines.append(f'{row["i"]},"{text}"' if '"' in text or "\n" in text else f"{row['i']},{text}")
    write(tmp_path, "\n".join(lines) + "\n")
    file = accepted(files)
    assert rows_of(files, file) == rows
    assert files.row(file, 3) == rows[3]


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path, files: RowFiles) -> None:
    assert files.read("params.csv") == [
        f"params.csv cannot be read: No such file or directory; relative paths start at {tmp_path}"
    ]
    os.mkfifo(tmp_path / "pipe.csv")
    assert files.read(str(tmp_path / "pipe.csv")) == [f"{tmp_path}/pipe.csv cannot be read: it is no regular file"]
    assert files.read("params.txt") == ["params.txt: a file of parameters must be one of: *.csv, *.jsonl, *.ndjson"]


def without_copy(file: RowFile) -> RowFile:
    """The file as seen by jobs that were submitted before copies were kept."""
    return replace(file, content="")


def kept(directory: Path, ending: str) -> Path:
    """The copy or the index in a directory that has one of each."""
    (path,) = (directory / "rows").glob(f"*.{ending}")
    return path


def unlink(path: Path) -> None:
    path.unlink()


def overwrite(path: Path) -> None:
    path.write_bytes(b"x" * path.stat().st_size)


@pytest.mark.parametrize("content", ["T\n250\n3\n350\n", "T\n250\n300000\n350\n", "T\n", "T,p\n1,2\n1,2\n1,2\n", None])
def test_rows_stay_as_they_were_submitted(tmp_path: Path, files: RowFiles, content: str | None) -> None:
    path = write(tmp_path, "T\n250\n300\n350\n")
    file = accepted(files)
    assert files.change_of(file) == ""
    if content is None:
        path.unlink()
        assert files.change_of(file) == f"{path} cannot be read: No such file or directory"
    else:
        write(tmp_path, content)
        assert files.change_of(file) == f"{path} has changed"
    for later in (files, RowFiles(str(tmp_path), str(tmp_path / "rows"))):
        assert rows_of(later, file) == [{"T": "250"}, {"T": "300"}, {"T": "350"}]


def test_copies_are_for_the_owner_only_and_hold_what_was_scanned(tmp_path: Path, files: RowFiles) -> None:
    content = "\ufeffT,p\r\n" + "".join(f'{number},"x\n{number}"\r\n' for number in range(100_000))
    path = write(tmp_path, content)
    path.chmod(0o644)
    accepted(files)
    copy = kept(tmp_path, "copy")
    assert copy.read_bytes() == content.encode()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "rows").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [unlink, overwrite])
def test_rows_are_read_from_the_file_when_the_copy_is_lost_or_damaged(
    tmp_path: Path, files: RowFiles, damage: Callable[[Path], None]
) -> None:
    write(tmp_path, "T\n250\n300\n")
    file = accepted(files)
    damage(kept(tmp_path, "copy"))
    assert rows_of(files, file) == [{"T": "250"}, {"T": "300"}]
    write(tmp_path, "T\n250\n301\n")
    assert files.row(file, 0) == {"T": "250"}
    with pytest.raises(RowError, match=r"row 1 of .*params.csv has changed"):
        files.row(file, 1)


def test_a_link_in_place_of_a_copy_is_not_followed(tmp_path: Path, files: RowFiles) -> None:
    path = write(tmp_path, "T\n250\n")
    file = accepted(files)
    copy = kept(tmp_path, "copy")
    copy.rename(tmp_path / "moved")
    copy.symlink_to(tmp_path / "moved")
    path.unlink()
    with pytest.raises(RowError, match=r"params.csv, which has its row, cannot be read"):
        files.row(file, 0)


def test_without_a_copy_a_changed_row_is_noticed_and_the_others_can_be_used(tmp_path: Path, files: RowFiles) -> None:
    path = write(tmp_path, "T\n250\n300\n350\n")
    file = without_copy(accepted(files))
    assert not files.has_copy(file)
    assert files.change_of(file) == ""
    assert files.row(file, 1) == {"T": "300"}
    write(tmp_path, "T\n250\n301\n350\n400\n")
    assert files.change_of(file) == f"{path} has changed"
    assert files.row(file, 0) == {"T": "250"}
    assert files.row(file, 2) == {"T": "350"}
    with pytest.raises(
        RowError,
        match=r"row 1 of .*params.csv has changed since the job was submitted; put the old row back, or give the job"
        r" with the new rows to --rerun failed --from FILE$",
    ):
        files.row(file, 1)


def test_without_a_copy_a_file_replaced_by_another_one_is_noticed(tmp_path: Path, files: RowFiles) -> None:
    write(tmp_path, "T\n250\n300\n")
    file = without_copy(accepted(files))
    files.row(file, 0)
    write(tmp_path, "T\n111\n300\n", "new.csv").replace(tmp_path / "params.csv")
    with pytest.raises(RowError, match="row 0 of"):
        files.row(file, 0)
    assert files.row(file, 1) == {"T": "300"}


def test_without_a_copy_a_file_that_is_gone_or_cut_short_is_noticed(tmp_path: Path, files: RowFiles) -> None:
    path = write(tmp_path, "T\n250\n300\n")
    file = without_copy(accepted(files))
    write(tmp_path, "T\n250\n")
    with pytest.raises(RowError, match="row 1 of .* has changed"):
        files.row(file, 1)
    path.unlink()
    with pytest.raises(RowError, match="cannot be read: No such file"):
        files.row(file, 0)
    assert "cannot be read" in files.change_of(file)


@pytest.mark.parametrize("damage", [unlink, overwrite])
@pytest.mark.parametrize("has_copy", [True, False])
def test_a_lost_or_damaged_index_is_written_again(
    tmp_path: Path, files: RowFiles, damage: Callable[[Path], None], has_copy: bool
) -> None:
    path = write(tmp_path, "T\n250\n300\n")
    file = accepted(files)
    if has_copy:
        path.unlink()
    else:
        kept(tmp_path, "copy").unlink()
        file = without_copy(file)
    damage(kept(tmp_path, "index"))
    later = RowFiles(str(tmp_path), str(tmp_path / "rows"), builds=True)
    assert later.row(file, 1) == {"T": "300"}


def test_without_copy_and_index_a_changed_file_cannot_be_used(tmp_path: Path, files: RowFiles) -> None:
    write(tmp_path, "T\n250\n300\n")
    file = accepted(files)
    kept(tmp_path, "copy").unlink()
    kept(tmp_path, "index").unlink()
    write(tmp_path, "T\n250\n301\n")
    later = RowFiles(str(tmp_path), str(tmp_path / "rows"), builds=True)
    with pytest.raises(RowError, match="has changed since the job was submitted, and its index is gone"):
        later.row(file, 0)


def test_a_viewer_of_a_run_writes_no_index(tmp_path: Path, files: RowFiles) -> None:
    write(tmp_path, "T\n250\n")
    file = accepted(files)
    viewer = RowFiles(str(tmp_path), str(tmp_path / "rows"))
    assert viewer.row(file, 0) == {"T": "250"}
    kept(tmp_path, "index").unlink()
    with pytest.raises(RowError):
        RowFiles(str(tmp_path), str(tmp_path / "rows")).row(file, 0)
    assert list((tmp_path / "rows").iterdir()) == [kept(tmp_path, "copy")]


def test_equal_files_share_one_copy_and_one_index(tmp_path: Path, files: RowFiles) -> None:
    write(tmp_path, "T\n250\n")
    write(tmp_path, "T\n250\n", "other.csv")
    one, other = accepted(files), accepted(files, "other.csv")
    assert (one.digest, one.content) == (other.digest, other.content)
    assert {path.name for path in (tmp_path / "rows").iterdir()} == {f"{one.digest}.index", f"{one.content}.copy"}


def test_files_that_differ_only_in_the_names_keep_their_names(tmp_path: Path, files: RowFiles) -> None:
    write(tmp_path, "T\n250\n")
    write(tmp_path, "p\n250\n", "other.csv")
    one, other = accepted(files), accepted(files, "other.csv")
    assert [files.row(one, 0), files.row(other, 0)] == [{"T": "250"}, {"p": "250"}]


def test_rows_that_differ_are_found_in_blocks(tmp_path: Path, files: RowFiles) -> None:
    lines = [str(number) for number in range(3 * ROWS_PER_BLOCK + 5)]
    write(tmp_path, "T\n" + "\n".join(lines) + "\n")
    before = accepted(files)
    assert list(files.differing(before, before)) == []
    changed = [0, ROWS_PER_BLOCK - 1, 2 * ROWS_PER_BLOCK, len(lines) - 1]
    for position in changed:
        lines[position] += "x"
    write(tmp_path, "T\r\n" + "\r\n".join(lines) + "\r\n")
    assert list(files.differing(before, accepted(files))) == changed
    write(tmp_path, "p\n" + "\n".join(lines) + "\n")
    assert list(files.differing(before, accepted(files))) == list(range(len(lines)))


def test_the_memory_for_a_file_does_not_grow_with_its_rows(tmp_path: Path, files: RowFiles) -> None:
    def peak(rows: int) -> int:
        path = write(tmp_path, "T,p\n" + "".join(f"{row},{row}\n" for row in range(rows)), f"{rows}.csv")
        store = RowFiles(str(tmp_path), str(tmp_path / "rows"), builds=True)
        tracemalloc.start()
        try:
            file = accepted(store, path.name)
            for position in range(0, rows, rows // 500):
                store.row(file, position)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small, large = peak(50_000), peak(500_000)
    assert large < 1.5 * small


def test_the_output_of_a_csv_writer_is_read_back(tmp_path: Path, files: RowFiles) -> None:
    values = ["", " ", '"', '""', ",", "\n", "\r\n", "a\rb", "ü", "x" * 1000, "'", "${it}", "\u2028", '",\n"']
    with (tmp_path / "params.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b"])
        writer.writerows([[one, other] for one in values for other in values])
    expected = [{"a": one, "b": other} for one in values for other in values]
    assert rows_of(files, accepted(files)) == expected
    write(tmp_path, "".join(json.dumps(row) + "\n" for row in expected), "p.jsonl")
    assert rows_of(files, accepted(files, "p.jsonl")) == expected


def test_messages_have_no_control_characters_of_the_file(tmp_path: Path, files: RowFiles) -> None:
    write(tmp_path, "T\x1b[31m,p\n1\n", "a\x1bb.csv")
    assert files.read("a\x1bb.csv") == ["a?b.csv, line 2: has 1 value; the file has 2 columns: T?[31m, p"]


TEXTS = st.text(alphabet='",\n\r a1ü', max_size=40)


@pytest.mark.sampled
@given(st.lists(st.one_of(TEXTS, st.sampled_from(["1,2\n", '"a","b\nc"\n', "\r\n", 'x,"y ""z"""\r\n'])), max_size=8))
@settings(
    deadline=None,
    max_examples=per_tier(300, 5000),
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_text_is_read_like_the_csv_module_does_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[str]
) -> None:
    text = "a,b\n" + "".join(parts)
    write(tmp_path, text)
    found = []
    for block in (1 << 18, 16, 5):
        monkeypatch.setattr(scan, "_BLOCK", block)
        files = RowFiles(str(tmp_path), str(tmp_path / "rows"), builds=True)
        result = files.read("params.csv")
        found.append(result if isinstance(result, list) else rows_of(files, result))
    assert found[0] == found[1] == found[2]
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row][1:]
    except csv.Error:
        rows = []
    if found[0] and isinstance(found[0][0], dict):
        assert found[0] == [{"a": one, "b": other} for one, other in rows]
    elif all(len(row) == 2 for row in rows) and rows:
        # Only a quote in a value without quotes, or a line that ends with a carriage return alone.
        assert "out of place" in str(found[0]) or "not closed" in str(found[0])
