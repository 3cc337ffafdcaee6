"""Finds every position where a JSON value does not match a form.

The decoder stops at its first error. This slower walk runs only after such an error. It inspects the same types, so
each form is defined once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect

from qcg.pilotjob.common.similarity import nearest
from qcg.pilotjob.description.errors import Problem, join_path, quoted, suggestion


def find_problems(value: Any, form: Any, path: str) -> list[Problem]:
    """All problems of a decoded JSON value, in the order of the input."""
    problems: list[Problem] = []
    _walk(value, _type_info(form), path, problems)
    return problems


def find_nul_characters(value: Any, path: str) -> list[Problem]:
    """Every string with a NUL character: allowed in JSON, but not in arguments, paths and environments."""
    problems: list[Problem] = []
    pending = [(path, value)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, str) and "\0" in value:
            problems.append(Problem(path, "holds a NUL character"))
        elif isinstance(value, list):
            pending += [(f"{path}[{number}]", item) for number, item in enumerate(value)]
        elif isinstance(value, dict):
            pending += [(path, key) for key in value]
            pending += [(join_path(path, key), item) for key, item in value.items()]
    return problems


@lru_cache(maxsize=64)
def _type_info(form: Any) -> inspect.Type:
    return inspect.type_info(form)


def _walk(value: Any, expected: inspect.Type, path: str, problems: list[Problem]) -> None:
    choices = _choices(expected)
    fitting = next((choice for choice in choices if _fits(value, choice)), None)
    if fitting is None:
        problems.append(Problem(path, f"must be {_either(choices)}, not {_name_of(value)}{_example(expected)}"))
    elif isinstance(fitting, inspect.StructType):
        _walk_object(value, fitting, path, problems)
    elif isinstance(fitting, inspect.DictType):
        for key, item in value.items():
            _walk(item, fitting.value_type, join_path(path, key), problems)
    elif isinstance(fitting, inspect.ListType):
        _check_length(value, fitting, path, problems)
        for number, item in enumerate(value):
            _walk(item, fitting.item_type, f"{path}[{number}]", problems)
    elif isinstance(fitting, (inspect.IntType, inspect.FloatType)):
        if fitting.ge is not None and value < fitting.ge:
            problems.append(Problem(path, f"must be at least {_limit(fitting.ge)}"))
        elif fitting.le is not None and value > fitting.le:
            problems.append(Problem(path, f"must be at most {_limit(fitting.le)}"))
    elif isinstance(fitting, inspect.StrType):
        if fitting.max_length is not None and len(value) > fitting.max_length:
            problems.append(Problem(path, f"has {len(value)} characters; at most {fitting.max_length} are allowed"))
    elif isinstance(fitting, inspect.LiteralType) and value not in fitting.values:
        problems.append(
            Problem(path, f"unknown value {quoted(value)}{suggestion(value, tuple(map(str, fitting.values)))}")
        )


def _example(expected: inspect.Type) -> str:
    """The last example of the schema: the first ones are the simplest."""
    if not isinstance(expected, inspect.Metadata):
        return ""
    examples = (expected.extra_json_schema or {}).get("examples")
    return f", such as {msgspec.json.encode(examples[-1]).decode()}" if examples else _example(expected.type)


def _limit(number: float) -> str:
    return str(int(number) if number == int(number) else number)


def _walk_object(value: dict[str, Any], form: inspect.StructType, path: str, problems: list[Problem]) -> None:
    fields = {entry.encode_name: entry for entry in form.fields}
    for key, item in value.items():
        if key in fields:
            _walk(item, fields[key].type, join_path(path, key), problems)
        elif key != form.tag_field:
            problems.append(Problem(join_path(path, key), f"unknown key{_hint(key, form)}"))
    for key, entry in fields.items():
        if entry.required and key not in value:
            hint: str = getattr(form.cls, "MISSING_KEY_HINTS", {}).get(key, "")
            problems.append(Problem(path, f'the key "{key}" is missing{hint and f"; {hint}"}'))


def without_problems(value: Any, form: type) -> Any:
    """The value without the parts that `find_problems` reports; None when nothing is left."""
    remaining = _pruned(value, _type_info(form))
    return None if remaining is _NOTHING else remaining


_NOTHING = object()


def _pruned(value: Any, expected: inspect.Type) -> Any:
    fitting = next((choice for choice in _choices(expected) if _fits(value, choice)), None)
    if isinstance(fitting, inspect.StructType):
        types = {entry.encode_name: entry.type for entry in fitting.fields}
        kept = {key: _pruned(item, types[key]) for key, item in value.items() if key in types}
        return {key: item for key, item in kept.items() if item is not _NOTHING}
    if isinstance(fitting, inspect.ListType):
        items = [_pruned(item, fitting.item_type) for item in value]
        return _NOTHING if any(item is _NOTHING for item in items) else items
    problems: list[Problem] = []
    _walk(value, expected, "", problems)
    return _NOTHING if problems else value


def _hint(key: str, form: inspect.StructType) -> str:
    """A hint for an unknown key: the object it belongs into, or the most similar known key."""
    hints: dict[str, str] = getattr(form.cls, "UNKNOWN_KEY_HINTS", {})
    if key in hints:
        return f"; {hints[key]}"
    for entry in form.fields:
        for choice in _choices(entry.type):
            if isinstance(choice, inspect.StructType) and any(inner.encode_name == key for inner in choice.fields):
                return f'; it belongs inside "{entry.encode_name}"'
    return _hint_for_misspelt(key, form.cls) or suggestion(key, tuple(entry.encode_name for entry in form.fields))


@lru_cache(maxsize=1024)  # a large file tends to repeat the same mistake in every job
def _hint_for_misspelt(key: str, form: type) -> str:
    """A hint for a key that is nearly one with a hint of its own, such as `resorces`; empty for other keys."""
    hints: dict[str, str] = getattr(form, "UNKNOWN_KEY_HINTS", {})
    near = nearest(key[:100].lower(), hints, cutoff=0.85)
    if near is None:
        return ""
    hint = hints[near]
    return f"; {hint}" if hint.startswith("did you mean") else f'; did you mean "{near}"? {hint[0].upper()}{hint[1:]}'


def _check_length(value: list[Any], form: inspect.ListType, path: str, problems: list[Problem]) -> None:
    least, most = form.min_length or 0, form.max_length
    if len(value) < least or (most is not None and len(value) > most):
        wanted = f"must have {least} to {most} elements, not {len(value)}"
        problems.append(Problem(path, "must not be empty" if most is None else wanted))


def _choices(expected: inspect.Type) -> list[inspect.Type]:
    if isinstance(expected, inspect.Metadata):
        return _choices(expected.type)
    if isinstance(expected, inspect.UnionType):
        return [choice for member in expected.types for choice in _choices(member)]
    return [expected]


def _fits(value: Any, choice: inspect.Type) -> bool:
    """Whether a value has the right JSON type; its content is checked separately."""
    if isinstance(choice, (inspect.AnyType, inspect.RawType)):
        return True
    if isinstance(choice, inspect.FloatType):
        return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool))
    return type(value) is _KINDS[type(choice)]


_KINDS: dict[type[inspect.Type], type] = {
    inspect.NoneType: type(None),
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.StrType: str,
    inspect.LiteralType: str,
    inspect.ListType: list,
    inspect.DictType: dict,
    inspect.StructType: dict,
}
_NAMES: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.StrType: "a string",
    inspect.LiteralType: "a string",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.ListType: "an array",
    inspect.DictType: "an object",
    inspect.StructType: "an object",
}


def _name_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return {int: "a number", float: "a fraction", str: "a string", list: "an array", dict: "an object"}[type(value)]


def _either(choices: list[inspect.Type]) -> str:
    kinds = {type(choice) for choice in choices}
    if inspect.FloatType in kinds:
        kinds.discard(inspect.IntType)
    names = list(dict.fromkeys(name for kind, name in _NAMES.items() if kind in kinds))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
