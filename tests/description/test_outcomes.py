"""The keys of dependencies on other outcomes than success, in both forms."""

from __future__ import annotations

from qcg.pilotjob.description.parse import simple_to_standard
from tests.description.helpers import parse, parse_one, problems_of, simple, standard

GIVEN = {"afterstart": "s", "afterany": ["a", "b:3", "a"], "afternotok": ["n:${it}"]}
MEANT = (("afterany", "a"), ("afterany", "b:3"), ("afternotok", "n:${it}"), ("afterstart", "s"))


def test_both_forms_have_the_keys():
    iteration = {"iteration": 3}
    assert parse_one({**standard(), "dependencies": GIVEN, **iteration}).outcomes == MEANT
    assert parse_one(simple(**GIVEN, **iteration)).outcomes == MEANT
    assert parse_one(simple(after="x")).outcomes == ()


def test_the_simple_form_is_converted():
    assert simple_to_standard({"name": "a", "exec": "true", "afterany": "b"})["dependencies"] == {"afterany": ["b"]}


def test_variables_are_substituted_in_jobs_that_are_expanded():
    jobs = parse({"name": "a_${it}", "exec": "true", "iteration": 2, "afternotok": "b_${it}"})
    assert [job.outcomes for job in jobs] == [(("afternotok", "b_0"),), (("afternotok", "b_1"),)]


def test_problems_are_reported_with_their_paths():
    (problem,) = problems_of({**standard(), "dependencies": {"afterany": ["x", "x:y"]}})
    assert problem.startswith("jobs[0].dependencies.afterany[1]: ")
    (problem,) = problems_of(simple(afterstart="x:${it}"))
    assert problem == 'jobs[0].afterstart: "x:${it}" means the same index, but this job has no iterations'
