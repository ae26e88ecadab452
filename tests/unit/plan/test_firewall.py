"""The rule text: valid for nft, one table, and only what is declared."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kit.plan.areas.firewall import digest_of, ports, rules_text
from tests.unit.plan import world

NFT = shutil.which("nft", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def test_only_our_table_is_named() -> None:
    text = rules_text(world.declared())
    assert "flush" not in text
    tables = {
        line.partition("table ")[2].rstrip(" {") for line in text.splitlines() if line.startswith(("table ", "delete table "))
    }
    assert tables == {"inet b300kit"}


def test_the_carried_hash_changes_with_any_rule() -> None:
    one = rules_text(world.declared())
    other = rules_text(world.declared(network__engine={"ports": "30000", "from": ["192.0.2.9/32"]}))
    assert digest_of(one) != digest_of(other)
    assert len(digest_of(one)) == 64
    assert digest_of(one) == digest_of(rules_text(world.declared()))


def test_nobody_means_nobody() -> None:
    text = rules_text(world.declared())
    nccl = text.split("set nccl_v4 {")[1].split("}")[0]
    assert "elements" not in nccl
    assert "th dport 28028-28031 drop" in text


def test_port_ranges() -> None:
    assert list(ports("30000")) == [30000]
    assert ports("28028-28031") == range(28028, 28032)


@pytest.mark.skipif(NFT is None or os.geteuid() != 0, reason="needs nft and root (a check still asks the kernel)")
def test_nft_accepts_it(tmp_path: Path) -> None:
    assert NFT is not None
    both = {"ports": "30000-30003", "from": ["192.0.2.0/24", "198.51.100.7/32", "2001:db8::/32"]}
    for spec in (world.declared(), world.declared(network__engine=both, network__metrics=None, network__nccl=None)):
        file = tmp_path / "rules.nft"
        file.write_text(rules_text(spec))
        done = subprocess.run([NFT, "--check", "--file", str(file)], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
