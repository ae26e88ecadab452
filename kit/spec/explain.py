"""What pydantic found wrong with a spec, said to an operator: file, line and key, expected, found, next step. Pure."""

from __future__ import annotations

import difflib
import ipaddress
import types
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from kit.errors import Failure, failure
from kit.spec import units
from kit.spec.strict_yaml import Document, Path

_PATTERNS = {
    "identity_file": ("a path of letters, digits, / . _ -, absolute or from ~/, without ..", "give the plain path"),
    "name": ("lower-case letters, digits and hyphens", "choose such a name"),
    "image": ("lower-case letters, digits and hyphens", "choose such a name"),
    "engine": ("lower-case letters, digits and hyphens", "choose such a name"),
    "address": ("a host name or IP address", "put the port under `port`"),
    "host_key": (
        "`ssh-ed25519 AAAA...`: type and key, no host name or comment",
        "copy it from /etc/ssh/ssh_host_ed25519_key.pub",
    ),
    "user": ("a Unix user name", "use lower-case letters, digits, _ and -"),
    "service_user": ("a Unix user name", "use lower-case letters, digits, _ and -"),
    "data_dir": ("an absolute path of plain characters, without .. or hidden parts", "give such a path"),
    "data_root": ("an absolute path of plain characters, without .. or hidden parts", "give such a path"),
    "ports": ("a port or a range, e.g. 30000 or 30000-30007", "give one range"),
    "compute_capability": ('two numbers in quotes, e.g. "10.3"', "write it in quotes"),
    "hold": ("a Debian package name", "see `apt-cache policy NAME`"),
    "minimum": ('a version of numbers in quotes, e.g. "580.65.06"', "take it from `cat /sys/module/nvidia/version`"),
}
_TYPES = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "keys and values",
    "model_type": "keys and values",
    "finite_number": "a finite number",
}
_BOUNDS = {"greater_than": ("gt", "more than"), "greater_than_equal": ("ge", "at least")} | {
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def dotted(path: Iterable[str | int]) -> str:
    """``("gpus", "sms")`` as ``gpus.sms``; a list place as ``[0]``."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def line_of(document: Document, path: Path) -> int:
    """The line of a path, or of its nearest parent that is in the text."""
    while path and path not in document.lines:
        path = path[:-1]
    return document.lines.get(path, 1)


def where(file: str, line: int, path: Path) -> str:
    """``fleet/hosts/node1.yml:12 gpus.sms``."""
    place = f"{file}:{line}" if line else file
    key = dotted(path)
    return f"{place} {key}" if key else place


def known_keys(model: Any, path: Path) -> list[str]:
    """The keys that the model knows at a path; [] where any key may stand."""
    for part in path:
        model = _descend(model, part)
    found = _model_of(model)
    return [field.alias or name for name, field in found.model_fields.items()] if found else []


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        for part in get_args(annotation):
            if found := _model_of(part):
                return found
    return None


def _descend(annotation: Any, part: str | int) -> Any:
    model = _model_of(annotation)
    if model:
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
    arguments = [a for a in get_args(annotation) if a is not Ellipsis]
    return arguments[-1] if arguments else None


def _real_path(document: Document, location: tuple[str | int, ...]) -> Path:
    """pydantic's location without the names of union branches and keys that it adds: as far as the text goes."""
    path: Path = ()
    for part in location:
        if (*path, part) in document.lines:
            path = (*path, part)
    return path


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "keys and values" if isinstance(value, dict) else "a list"
    text = str(value)
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return text if len(text) <= 80 else text[:77] + "..."


def _expected(error: Mapping[str, Any], key: str) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if key == "from" and kind != "tuple_type":
        return "a network such as 10.0.0.0/24 or fd00::/64"
    if kind in _TYPES:
        return _TYPES[kind]
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"{words} {context[name]}"
    if kind == "literal_error":
        return str(context["expected"])
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(key, (f"text like {context['pattern']}", ""))[0]
    return str(error["msg"])


def _next(error: Mapping[str, Any], key: str, value: Any, expected: str) -> str:
    unit = units.unit_of(key)
    if units.has_unit(value) and "number" in expected:
        number = units.convert(str(value), unit)
        return f"write `{key}: {number}`" if number else f"give the number alone{', in ' + unit if unit else ''}"
    if error["type"] == "string_type" and isinstance(value, int | float) and not expected.startswith("a network"):
        return f'write it in quotes: "{value}"'
    if error["type"] == "string_pattern_mismatch" and key in _PATTERNS:
        return _PATTERNS[key][1]
    if isinstance(value, str) and "number" in expected and value.strip().replace(".", "", 1).isdigit():
        return f"write {value.strip()} without quotes"
    if isinstance(value, str) and expected == "true or false":
        return "write true or false without quotes"
    if expected.startswith("a network") and isinstance(value, str):
        try:
            return f"clear the host bits: {ipaddress.ip_network(value, strict=False)}"
        except ValueError:
            return "give a network in CIDR form"
    if error["type"] == "literal_error" and isinstance(value, str):
        options = [o.strip("' ") for o in expected.replace(" or ", ",").split(",")]
        close = difflib.get_close_matches(value, options, n=1)
        return f"did you mean {close[0]!r}?" if close else "use one of these"
    return "give such a value"


def explain(
    error: ValidationError, model: type[BaseModel], document: Document, file: str, skip: Collection[Path] = ()
) -> list[Failure]:
    """One failure for each place that is wrong; the branches of a union are told as one.

    ``skip`` holds places that something else was said about already.
    """
    by_path: dict[Path, list[Failure]] = {}
    for item in error.errors(include_url=False):
        kind, location = item["type"], tuple(item["loc"])
        if kind == "extra_forbidden":
            path = _real_path(document, location)
            made = _unknown_key(model, path, document, file)
        elif kind == "missing":
            path = (*_real_path(document, location[:-1]), location[-1])
            made = failure(
                "spec.missing_key", where(file, line_of(document, path), path), "this key", "nothing", f"add `{location[-1]}:`"
            )
        else:
            path = _real_path(document, location)
            made = _wrong_value(item, path, location, document, file)
        by_path.setdefault(path, []).append(made)
    return [_merged(found) for path, found in by_path.items() if path not in skip and not _misspelt(path, by_path)]


def _misspelt(path: Path, by_path: Mapping[Path, list[Failure]]) -> bool:
    """Whether a missing key is there under a wrong name, about which enough was said."""
    if by_path[path][0].code != "spec.missing_key":
        return False
    unknown = [other for other in by_path if other[:-1] == path[:-1] and by_path[other][0].code == "spec.unknown_key"]
    return any(by_path[other][0].next == f"did you mean {str(path[-1])!r}?" for other in unknown)


def _unknown_key(model: type[BaseModel], path: Path, document: Document, file: str) -> Failure:
    keys = known_keys(model, path[:-1])
    key = str(path[-1])
    close = difflib.get_close_matches(key, keys, n=1, cutoff=0.6)
    return failure(
        "spec.unknown_key",
        where(file, line_of(document, path), path),
        "one of " + ", ".join(keys) if keys else "no such key",
        repr(key),
        f"did you mean {close[0]!r}?" if close else "remove it",
    )


def _wrong_value(item: Mapping[str, Any], path: Path, location: tuple[str | int, ...], document: Document, file: str) -> Failure:
    key = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
    value = document.value
    for part in path:
        value = value[part]
    place = where(file, line_of(document, path), path)
    if value is None and path:
        return failure("spec.missing_value", place, _expected(item, key), "nothing", f"fill in `{key}`")
    if location and location[-1] == "[key]":
        return failure("spec.bad_name", place, _expected(item, key), _shown(key), "use lower-case letters, digits and hyphens")
    expected = _expected(item, key)
    unit = units.unit_of(key)
    if unit and ("number" in expected or item["type"] in _BOUNDS):
        expected += f", in {unit}"
    code = "spec.wrong_unit" if units.has_unit(value) and "number" in expected else _code(item["type"])
    # Quotes tell the text "4" from the number 4.
    found = f'"{value}"' if isinstance(value, str) and code == "spec.wrong_type" else _shown(value)
    return failure(code, place, expected, found, _next(item, key, value, expected))


def _code(kind: str) -> str:
    if kind in _BOUNDS:
        return "spec.out_of_range"
    if kind == "string_pattern_mismatch":
        return "spec.bad_text"
    if kind == "literal_error":
        return "spec.bad_choice"
    return "spec.wrong_type"


def _merged(found: list[Failure]) -> Failure:
    """The branches of one union as one failure: the most telling code, what each branch expects."""
    first = min(found, key=lambda f: ("wrong_unit" not in f.code, "range" not in f.code))
    expected = list(dict.fromkeys(f.expected for f in found))
    return first.model_copy(update={"expected": " or ".join(expected)})
