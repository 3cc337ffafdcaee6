"""File names of saved output: safe, and never the same for two jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcg.pilotjob.description.model import Execution, Iteration, JobDescription
from qcg.pilotjob.launch.output import output_name, safe_name

PLAIN = JobDescription("job", Execution(exec="prog"))
ITERATED = JobDescription("job", Execution(exec="prog"), iteration=Iteration(0, 100))


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("sim", "sim"),
        ("sim_2.long-run", "sim_2.long-run"),
        ("a/../../b", "a%2F..%2F..%2Fb"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("100%", "100%25"),
        ("sim.3", "sim%2E3"),
        ("żółw", "żółw"),
        ("a\x1b[31m\n", "a%1B[31m%0A"),
        ("\u202egnp", "%E2%80%AEgnp"),
        ("\udc80", "%ED%B2%80"),
    ],
)
def test_a_file_name_is_the_job_name_with_unsafe_characters_escaped(name: str, safe: str):
    assert safe_name(name) == safe


def test_iterations_have_their_index_behind_the_name():
    assert output_name(ITERATED, "sim", 7) == "sim.7"
    assert output_name(PLAIN, "sim", -1) == "sim"
    in_steps = JobDescription("job", Execution(exec="prog"), iteration=Iteration(10, 100, 5))
    assert output_name(in_steps, "sim", 2) == "sim.20"


@given(st.text(min_size=1, max_size=400), st.integers(0, 99))
def test_every_name_fits_into_a_directory(name: str, position: int):
    made = output_name(ITERATED, name, position) + ".out"
    assert "/" not in made
    assert not made.startswith(".")
    assert made.isprintable()
    assert len(made.encode()) <= 255


NAMES = st.text("ab.%/2E3~\n", min_size=1, max_size=6)
JOBS = st.tuples(NAMES, st.integers(-1, 9))


@given(JOBS, JOBS)
def test_two_jobs_have_two_names(one: tuple[str, int], other: tuple[str, int]):
    names = {output_name(ITERATED if position >= 0 else PLAIN, name, position) for name, position in (one, other)}
    assert len(names) == len({one, other})


def test_long_names_with_the_same_beginning_differ():
    assert safe_name("x" * 300 + "a") != safe_name("x" * 300 + "b")
