"""Finds every place where a value does not have the structure of a form.

The decoder stops at the first thing that it does not like. This walk is slow and only taken after such a refusal; it
goes through the same types, so a form is written down once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import inspect

from qcg.pilotjob.description.errors import Problem, suggestion


def find_problems(value: Any, form: type, path: str) -> list[Problem]:
    """All problems of a decoded JSON value, in the order of the value."""
    problems: list[Problem] = []
    _walk(value, _type_info(form), path, problems)
    return problems


@lru_cache(maxsize=64)
def _type_info(form: type) -> inspect.Type:
    return inspect.type_info(form)


def _walk(value: Any, expected: inspect.Type, path: str, problems: list[Problem]) -> None:
    choices = _choices(expected)
    fitting = next((choice for choice in choices if _fits(value, choice)), None)
    if fitting is None:
        names = list(dict.fromkeys(_NAMES[type(choice)] for choice in choices if type(choice) in _NAMES))
        problems.append(Problem(path, f"must be {_either(names)}, not {_name_of(value)}"))
    elif isinstance(fitting, inspect.StructType):
        _walk_object(value, fitting, path, problems)
    elif isinstance(fitting, inspect.DictType):
        for key, item in value.items():
            _walk(item, fitting.value_type, join(path, key), problems)
    elif isinstance(fitting, inspect.ListType):
        _check_length(value, fitting, path, problems)
        for number, item in enumerate(value):
            _walk(item, fitting.item_type, f"{path}[{number}]", problems)
    elif isinstance(fitting, inspect.IntType):
        if fitting.ge is not None and value < fitting.ge:
            problems.append(Problem(path, f"must be at least {fitting.ge}"))
        elif fitting.le is not None and value > fitting.le:
            problems.append(Problem(path, f"must be at most {fitting.le}"))
    elif isinstance(fitting, inspect.LiteralType) and value not in fitting.values:
        words = tuple(map(str, fitting.values))
        problems.append(Problem(path, f'must be "{_either(list(words))}"{suggestion(value, words)}'))


def _walk_object(value: dict[str, Any], form: inspect.StructType, path: str, problems: list[Problem]) -> None:
    fields = {entry.encode_name: entry for entry in form.fields}
    for key, item in value.items():
        if key in fields:
            _walk(item, fields[key].type, join(path, key), problems)
        elif key != form.tag_field:
            problems.append(Problem(join(path, key), f"unknown key{_hint(key, form)}"))
    for key, entry in fields.items():
        if entry.required and key not in value:
            problems.append(Problem(path, f'the key "{key}" is missing'))


def _hint(key: str, form: inspect.StructType) -> str:
    """A key that is right, but one level too high, is told where it belongs; any other gets the nearest known one."""
    for entry in form.fields:
        for choice in _choices(entry.type):
            if isinstance(choice, inspect.StructType) and any(inner.encode_name == key for inner in choice.fields):
                return f'; it belongs inside "{entry.encode_name}"'
    return suggestion(key, tuple(entry.encode_name for entry in form.fields))


def _check_length(value: list[Any], form: inspect.ListType, path: str, problems: list[Problem]) -> None:
    least, most = form.min_length or 0, form.max_length
    if len(value) < least or (most is not None and len(value) > most):
        wanted = f"{least} to {most}" if most is not None else f"at least {least}"
        problems.append(Problem(path, f"must have {wanted} elements, not {len(value)}"))


def _choices(expected: inspect.Type) -> list[inspect.Type]:
    if isinstance(expected, inspect.Metadata):
        return _choices(expected.type)
    if isinstance(expected, inspect.UnionType):
        return [choice for member in expected.types for choice in _choices(member)]
    return [expected]


def _fits(value: Any, choice: inspect.Type) -> bool:
    """Whether the kind is right; what is inside is looked at afterwards."""
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
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.StrType: "a string",
    inspect.LiteralType: "a string",
    inspect.ListType: "an array",
    inspect.DictType: "an object",
    inspect.StructType: "an object",
}


def _name_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return {int: "a number", float: "a fraction", str: "a string", list: "an array", dict: "an object"}[type(value)]


def _either(names: list[str]) -> str:
    if "a number" in names and "a whole number" in names:
        names = [name for name in names if name != "a whole number"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def join(path: str, key: str) -> str:
    """The path of a key; one of odd characters is shortened and quoted, so that a path stays readable."""
    if not (key.isprintable() and 0 < len(key) <= 60):
        key = repr(key[:60])
    return f"{path}.{key}" if path else key
