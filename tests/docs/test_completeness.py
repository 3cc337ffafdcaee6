"""The documents describe every option, key, variable, state and package."""

from __future__ import annotations

import re
from pathlib import Path

import click
import msgspec
import pytest

from qcg.pilotjob.api import errors as api_errors
from qcg.pilotjob.api.aio import AsyncManager
from qcg.pilotjob.api.config import Config
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.jobinfo import JobInfo
from qcg.pilotjob.api.manager import LocalManager, Manager
from qcg.pilotjob.cli.commands.client import command as client
from qcg.pilotjob.cli.commands.service import command as service
from qcg.pilotjob.cli.main import COMMANDS, main
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description import forms, limits
from qcg.pilotjob.description.iteration_schedulers import MaximumIters
from qcg.pilotjob.description.requests import REQUESTS, InfoParams, StatusOptions
from qcg.pilotjob.description.variables import AT_LAUNCH, AT_SUBMISSION, OF_ITERATION
from qcg.pilotjob.interfaces import network, publisher
from qcg.pilotjob.report.metrics_text import metrics_text
from qcg.pilotjob.wire import auth_log, timing
from qcg.pilotjob.wire.contact import MOST_BYTES
from tests.docs.pages import PAGES, ROOT
from tests.report.test_metrics_text import summary
from tests.test_project import project_files

SOURCE = ROOT / "src/qcg/pilotjob"

FORMS = [
    form
    for form in vars(forms).values()
    if isinstance(form, type) and issubclass(form, msgspec.Struct) and form.__module__ == forms.__name__
]


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def words_in(page: str) -> set[str]:
    """Return all words that a page shows as code."""
    return set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`\n]+)`", text_of(page)))))


def options_of(command: click.Command) -> set[str]:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    return {option for parameter in shown for option in parameter.opts if option.startswith("--")}


@pytest.mark.parametrize("name", [*COMMANDS, "qcg-pm-service", "qcg-pm-client"])
def test_every_option_is_described(name: str):
    own = {"qcg-pm-service": service, "qcg-pm-client": client}
    command = own.get(name) or main.get_command(click.Context(main), name)
    assert command is not None
    assert name in words_in("docs/reference/commands.md")
    assert options_of(command) <= words_in("docs/reference/commands.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_avoid_the_ambiguous_form_of_nodes(page: Path):
    """A plain `--nodes 4` is four cores for some commands and four nodes for others."""
    options = r"qcg-pm(-service|-client)?(?! sbatch| submit)( [^|`]*)? --nodes[ =]\d+(?![\dx,])"
    unclear = re.compile(rf'{options}|"--nodes", "\d+"')
    assert [line for line in page.read_text().splitlines() if unclear.search(line)] == []


@pytest.mark.parametrize(
    "form", [*FORMS, *REQUESTS.values(), InfoParams, StatusOptions], ids=lambda form: form.__name__
)
def test_every_key_is_described(form: type[msgspec.Struct]):
    assert set(form.__struct_encode_fields__) <= words_in("docs/reference/request-files.md")


def test_every_request_is_described():
    assert set(REQUESTS) <= words_in("docs/reference/request-files.md")


def test_every_variable_is_described():
    assert words_in("docs/reference/request-files.md") >= AT_LAUNCH | AT_SUBMISSION | OF_ITERATION


def test_every_model_and_scheduler_is_described():
    assert {*forms.MODELS, *forms.SCHEDULERS, *forms.NODE_RESOURCES} <= words_in("docs/reference/request-files.md")


def test_every_state_is_described():
    assert {state.name for state in State} <= words_in("docs/explanation/scheduling.md")


def test_the_documented_number_of_libraries_matches_the_project():
    dependencies = re.search(r"^dependencies = \[\n(.*?)^\]", text_of("pyproject.toml"), re.MULTILINE | re.DOTALL)
    assert dependencies is not None
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
    assert f"Python, {words[len(dependencies[1].splitlines())]} libraries" in text_of("docs/explanation/comparison.md")


def public_names(kind: object) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    "kind", [Manager, LocalManager, AsyncManager, Jobs, JobInfo, Config], ids=lambda kind: kind.__name__
)
def test_every_name_of_the_api_is_described(kind: type):
    constructors = {"from_job", "from_child"}
    assert public_names(kind) - constructors <= words_in("docs/reference/api.md")


def test_every_error_of_the_api_is_described():
    assert public_names(api_errors) - {"annotations", "builtins"} <= words_in("docs/reference/api.md")


def test_every_event_is_described():
    topics = set(re.findall(r"`(\w+)`", text_of("docs/reference/network.md")))
    assert {"WEL", "JST", "JFI", "IST", "IFI", "NOJ", "BEAT"} <= topics


def test_every_reason_to_reject_a_connection_is_described():
    reasons = [value for name, value in vars(auth_log).items() if name.isupper() and isinstance(value, str)]
    assert len(reasons) == 5
    assert all(f"| `{reason}` |" in text_of("docs/reference/network.md") for reason in reasons)


def test_documented_network_limits_match_the_code():
    limits = text_of("docs/reference/network.md").partition("### Limits")[2]
    assert f"{MOST_BYTES >> 20} MiB" in limits
    assert f"| {network.MOST_IN_PROGRESS};" in limits
    assert f"| {network.LIMITS.unsent};" in limits
    assert f"| {publisher.LIMITS.unsent:,} |" in limits
    assert f"within {timing.HANDSHAKE_TIMEOUT // 1000} seconds" in limits


def test_documented_sizes_of_maximum_iters_match_the_code():
    rows = re.findall(
        r"^\| (\d+) \| (\d+) \| (\d+) \| ([\d, then]+) \|$", text_of("docs/explanation/scheduling.md"), re.MULTILINE
    )
    assert rows
    for iterations, cores, least, sizes in rows:
        plan = MaximumIters(int(iterations), int(cores), int(least))
        assert [plan.size(position) for position in range(plan.count)] == list(map(int, re.findall(r"\d+", sizes)))


def test_the_layout_lists_every_package_and_no_other():
    text = text_of("docs/explanation/architecture.md")
    parts = [path.relative_to(SOURCE).parts for path in project_files() if path.is_relative_to(SOURCE)]
    files = {names[0] for names in parts if len(names) == 1 and names[0].endswith(".py")} - {"__init__.py"}
    assert {names[0] for names in parts if len(names) > 1} == set(re.findall(r"^    (\w+)/ ", text, re.MULTILINE))
    assert files == set(re.findall(r"^    (\w+\.py) ", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_source_files_exist(page: Path):
    for name in re.findall(r"`((?:\w+/)*\w+\.py)`", page.read_text()):
        assert any((base / name).is_file() for base in (ROOT, SOURCE)), f"{page.name} names {name}"


def test_named_functions_exist():
    """References have the form `file.py:name`."""
    named = re.findall(r"`((?:\w+/)*\w+\.py):(\w+)(?:\.(\w+))?`", text_of("docs/explanation/architecture.md"))
    assert named
    for file, *names in named:
        text = (SOURCE / file).read_text()
        for name in filter(None, names):
            assert re.search(rf"^\s*(async def|def|class) {name}\b|^{name}\b.* = ", text, re.MULTILINE), (
                f"{file} has no {name}"
            )


def test_every_metric_is_described():
    names = {line.split("{")[0] for line in metrics_text(summary(ended=1.0)).splitlines() if not line.startswith("#")}
    assert names <= words_in("docs/how-to/notifications.md")


@pytest.mark.parametrize(
    "limit",
    [limits.MAX_EXPANSION, limits.MAX_EXPANSION_OF_SUBMISSION, limits.LONGEST_NAME, limits.LONGEST_NAME_WRITTEN],
)
def test_limits_of_variables_and_names_are_described(limit: int):
    (paragraph,) = re.findall(r"^Limits: (?:.+\n)+", text_of("docs/reference/request-files.md"), re.MULTILINE)
    assert re.search(rf"\b{limit:,}\b", paragraph)
