"""The generated JSON Schemas say what the models say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kit import paths
from kit.errors import ExitCode
from kit.spec import schema, strict_yaml
from kit.spec.commands import write_schemas

FILES = {"host": "examples/example.yml", "fleet": "fleet.yml", "lock": "lock.yml"}


def of(kind: str) -> Any:
    return json.loads(schema.files()[f"{kind}.schema.json"])


@pytest.mark.parametrize("kind", FILES)
def test_the_shipped_file_is_valid_and_names_its_schema(kind: str) -> None:
    path = paths.ROOT / "fleet" / FILES[kind]
    text = path.read_text()
    jsonschema.Draft202012Validator.check_schema(of(kind))
    jsonschema.validate(strict_yaml.read(text).value, of(kind))
    named = text.splitlines()[0].partition("$schema=")[2]
    assert (path.parent / named).resolve() == paths.ROOT / "fleet/schema" / f"{kind}.schema.json"


@pytest.mark.parametrize(("old", "new"), [("sms: 148", "smss: 148"), ("count: 4", "count: many"), ("ports: 30000", "ports: x")])
def test_an_editor_sees_the_mistake(old: str, new: str) -> None:
    text = (paths.ROOT / "fleet" / FILES["host"]).read_text()
    assert old in text
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(strict_yaml.read(text.replace(old, new, 1)).value, of("host"))


def test_a_stale_schema_is_found_and_mended(tmp_path: Path) -> None:
    assert write_schemas(tmp_path, check_only=True).exit_code == ExitCode.CHANGE_PENDING
    assert not list(tmp_path.iterdir())
    assert write_schemas(tmp_path, check_only=False).exit_code == ExitCode.OK
    assert write_schemas(tmp_path, check_only=True).exit_code == ExitCode.OK
    (tmp_path / "host.schema.json").write_text("{}")
    outcome = write_schemas(tmp_path, check_only=True)
    assert [failure.code for failure in outcome.failures] == ["schema.stale"]
