"""The textfile: unknown is absent, and one run does not undo what another said."""

from __future__ import annotations

import math
import re
import threading
from pathlib import Path

import pytest

from kit.errors import KitError, failure
from kit.outcome import HostOutcome, Outcome
from kit.report import metrics

CHANGED = HostOutcome(3, {"steps": [{"action": "change"}, {"action": "keep"}, {"action": "refuse"}]})
SETTLED = HostOutcome(0, {"steps": [{"action": "keep"}]})
AWAY = HostOutcome(7, {}, (failure("ssh.unreachable", "b"),))


def test_the_text_is_what_prometheus_reads(tmp_path: Path) -> None:
    path = tmp_path / "kit.prom"
    metrics.write(path, Outcome("drift", {"a": CHANGED, "b": SETTLED}), now=1_800_000_000.5)
    text = path.read_text()
    assert 'kit_drift_items{host="a"} 2\nkit_drift_items{host="b"} 0\n' in text
    assert 'kit_last_success_timestamp_seconds{host="a",task="drift"} 1800000000.500\n' in text
    assert re.search(r'^kit_build_info\{version="[^"]+",commit="[^"]*"\} 1$', text, re.M)
    assert text.endswith("\n")
    sample_line = re.compile(r'[a-z_]+\{([a-z]+="[^"\n]*",?)+\} [0-9.]+')
    assert all(line.startswith("# ") or sample_line.fullmatch(line) for line in text.splitlines())
    assert [p.name for p in tmp_path.iterdir()] == ["kit.prom"]
    assert path.stat().st_mode & 0o044


def test_a_host_that_was_not_read_has_no_drift_and_keeps_its_last_success(tmp_path: Path) -> None:
    path = tmp_path / "kit.prom"
    metrics.write(path, Outcome("drift", {"a": CHANGED, "b": SETTLED}), now=100.0)
    metrics.write(path, Outcome("drift", {"b": AWAY}), now=200.0)
    values = metrics.parse(path.read_text())
    assert values.drift == {"a": 2}
    assert values.last_success == {("a", "drift"): 100.0, ("b", "drift"): 100.0}


def test_a_failed_provision_is_no_success_and_a_good_one_is() -> None:
    before = metrics.Values({}, {("a", "drift"): 1.0})
    assert metrics.merge(before, Outcome("provision", {"a": HostOutcome(11)}), 5.0) == before
    after = metrics.merge(before, Outcome("provision", {"a": HostOutcome(0)}), 5.0)
    assert after.last_success == {("a", "drift"): 1.0, ("a", "provision"): 5.0}


def test_a_host_that_left_the_fleet_goes() -> None:
    before = metrics.Values({"a": 1, "gone": 2}, {("gone", "drift"): 1.0})
    after = metrics.merge(before, Outcome("drift", {"a": SETTLED}), 5.0, known={"a"})
    assert after == metrics.Values({"a": 0}, {("a", "drift"): 5.0})


def test_hostile_names_survive_the_round_trip() -> None:
    values = metrics.Values({'a"} 1\nb\\': 3}, {('x"\\\n', "drift"): 2.5})
    text = metrics.render(values, 'v"', "c\n")
    assert metrics.parse(text) == values
    assert len(text.splitlines()) == 9


def test_nonsense_in_the_old_file_is_left_out() -> None:
    text = 'kit_drift_items{host="a"} NaN\nkit_last_success_timestamp_seconds{host="a",task="t"} +Inf\nrubbish\n'
    assert metrics.parse(text) == metrics.Values({}, {})
    assert not math.isfinite(float("NaN"))


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kit.prom"
    threads = [
        threading.Thread(target=metrics.write, args=(path, Outcome("drift", {f"h{n}": SETTLED}), float(n))) for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(metrics.parse(path.read_text()).drift) == {f"h{n}" for n in range(12)}


def test_a_folder_that_is_not_there_is_a_named_failure(tmp_path: Path) -> None:
    with pytest.raises(KitError) as caught:
        metrics.write(tmp_path / "none" / "kit.prom", Outcome("drift", {}))
    assert caught.value.failures[0].code == "metrics.write"
