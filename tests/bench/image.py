"""`make bench-image`: what the image commands cost, as an operator runs them. Never a test: this machine may be busy.

``--clean`` also builds twice from empty caches (package files are kept: each is checked by its hash) and compares the ids.
``--host NAME`` delivers to a host twice; the second time nothing is sent.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kit import paths
from kit.paths import cache_dir

CACHED_S, DELIVERED_S = 15.0, 2.0
"""What the image issue asks for: a rebuild with nothing changed, a delivery of what is there."""


def invoke(*words: str, cache: Path | None = None) -> tuple[dict[str, Any], float, float]:
    """A command's document, its seconds by the wall, and those of the processor."""
    environment = os.environ | ({"B300KIT_CACHE": str(cache)} if cache else {})
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(
        [str(Path(sys.executable).parent / "invoke"), *words, "--format", "json"],
        cwd=paths.ROOT, env=environment, stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    document = json.loads(done.stdout)
    if not document["ok"]:
        sys.exit(json.dumps(document["failures"], indent=1))
    return document["result"], wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def line(what: str, wall: float, processor: float, limit: float | None = None) -> None:
    """One row."""
    judged = "" if limit is None else f"  limit {limit:.0f} s: {'kept' if wall <= limit else 'NOT KEPT'}"
    sys.stdout.write(f"{what:<44} {wall:7.1f} s  processor {processor:6.1f} s{judged}\n")
    sys.stdout.flush()


def clean(profile: str) -> None:
    """Two builds, each from a cache that holds nothing but package files."""
    ids = []
    for number in (1, 2):
        with tempfile.TemporaryDirectory(prefix="bench-image-", dir=cache_dir()) as scratch:
            cache = Path(scratch)
            shutil.copytree(cache_dir() / "wheels", cache / "wheels", copy_function=os.link)
            found, wall, processor = invoke("build-image", "--profile", profile, cache=cache)
            line(f"build {number} from a clean cache", wall, processor)
            ids.append(found["image_id"])
            for place in [*cache.glob("image/storage/overlay/*/merged"), cache / "image" / "storage" / "overlay"]:
                subprocess.run(["umount", str(place)], capture_output=True, check=False)
    same = "the same image" if ids[0] == ids[1] else "DIFFERENT IMAGES"
    sys.stdout.write(f"{same}: {' '.join(ids)}\n")


def main() -> None:
    """Print the rows that were asked for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--profile", default="sim")
    options.add_argument("--host", default="")
    options.add_argument("--clean", action="store_true")
    chosen = options.parse_args()
    if chosen.clean:
        clean(chosen.profile)
    found, wall, processor = invoke("build-image", "--profile", chosen.profile)
    line("build-image" + (" (nothing changed)" if found["cached"] else ""), wall, processor)
    _, wall, processor = invoke("build-image", "--profile", chosen.profile)
    line("build-image again, nothing changed", wall, processor, CACHED_S)
    _, wall, processor = invoke("image.verify", "--image", chosen.profile)
    line("image.verify", wall, processor)
    if chosen.host:
        _, wall, processor = invoke("image.push", "--host", chosen.host, "--image", chosen.profile)
        line(f"image.push to {chosen.host}", wall, processor)
        _, wall, processor = invoke("image.push", "--host", chosen.host, "--image", chosen.profile)
        line("image.push again, nothing to send", wall, processor, DELIVERED_S)


if __name__ == "__main__":
    main()
