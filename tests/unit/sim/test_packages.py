"""The local package source: real .debs, an upgrade on offer, every held name installed."""

from __future__ import annotations

import subprocess

from kit.sim.rootfs import packages


def test_the_source_indexes_what_it_holds(tmp_path):
    installed = packages.build_source(tmp_path)
    index = (tmp_path / "Packages").read_text().split("\n\n")
    assert len(index) == len(packages.PACKAGES) == len(list(tmp_path.glob("*.deb")))
    assert len(installed) == len({p.name for p in packages.PACKAGES})
    deb = tmp_path / next(name for name in installed if name.startswith("docker.io"))
    listing = subprocess.run(["dpkg-deb", "--contents", deb], capture_output=True, text=True, check=True).stdout
    assert "./usr/sbin/dockerd" in listing
    assert all(line.split()[1] == "root/root" for line in listing.splitlines())


def test_held_packages_exist_and_some_have_an_upgrade():
    for name in packages.HELD:
        assert packages.installed_version(name)
    newer = {p.name for p in packages.PACKAGES if not p.installed}
    assert {"nvidia-driver", "docker.io"} <= newer
