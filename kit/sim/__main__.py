"""``python -m kit.sim up|down|status``: the same functions as the ``sim.*`` tasks, without the rest of the command line."""

from __future__ import annotations

import argparse
import json
import sys

from kit.errors import KitError
from kit.sim import flow


def _progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> int:
    """Exit status of the command; JSON on standard output."""
    parser = argparse.ArgumentParser(prog="python -m kit.sim")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up")
    up.add_argument("--name", required=True)
    up.add_argument("--profile", default="b300-4")
    up.add_argument("--runtime", default="nspawn", choices=["nspawn", "qemu"])
    down = verbs.add_parser("down")
    down.add_argument("--name", help="all when left out")
    verbs.add_parser("status")
    options = parser.parse_args()
    try:
        if options.verb == "up":
            result = [flow.up(options.name, options.profile, runtime=options.runtime, progress=_progress).model_dump()]
        elif options.verb == "down":
            result = [gone.model_dump() for gone in flow.down(options.name, progress=_progress)]
        else:
            result = [host.model_dump() for host in flow.status()]
    except KitError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
