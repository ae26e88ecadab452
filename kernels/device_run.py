"""One call on a GPU machine: check the library, test, then time, and write one JSON. Times nothing when a test fails.

python -m kernels.device_run OUT_FOLDER [--compile] [--sanitize] [--only boundary,stats] [--skip-tests]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path


def say(text: str) -> None:
    """To standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


OPS = ("boundary", "stats", "gate", "qkv")


def run_tests(out: Path, only: tuple[str, ...]) -> tuple[int, str]:
    """pytest over the operators' folders and the parity with the peers, GPU required; (exit code, last lines)."""
    folders = [f"kernels/{op}" for op in only] + (["kernels/peers"] if only == OPS else [])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "--maxfail=12",
        "-p",
        "no:cacheprovider",
        "-m",
        "gpu",
        "--tb=short",
        *folders,
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "B300KIT_REQUIRE_GPU": "1", "PYTHONUNBUFFERED": "1"},
    )
    (out / "tests.txt").write_text(done.stdout + done.stderr)
    return done.returncode, done.stdout[-6000:]


def sanitize(out: Path, tool: str) -> dict[str, object]:
    """compute-sanitizer ``tool`` over one pass of every operator; its exit code and summary."""
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "kernels.exercise"]
    start = time.monotonic()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        timeout=280,
    )
    text = done.stdout + done.stderr
    (out / f"sanitizer_{tool}.txt").write_text(text[-200_000:])
    summary = [
        line for line in text.splitlines() if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line or "exercised" in line
    ]
    return {"tool": tool, "exit": done.returncode, "summary": summary[-3:], "seconds": round(time.monotonic() - start, 1)}


def main() -> int:
    """Returns 0 when every test passed and everything was timed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--compile", action="store_true", help="time torch.compile too (slow to compile)")
    parser.add_argument("--sanitize", default="", help="comma list of compute-sanitizer tools")
    parser.add_argument("--only", default=",".join(OPS))
    parser.add_argument("--chains", action="store_true", help="time the boundary chain too")
    parser.add_argument("--rows", default="1,6,8")
    parser.add_argument("--skip-tests", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    only = tuple(op for op in args.only.split(",") if op)
    rows_of = tuple(int(r) for r in args.rows.split(","))

    import torch

    from .common import bench

    report: dict[str, object] = {"provenance": bench.provenance(), "tests": None, "sanitizer": [], "figures": []}
    target = args.out / "results.json"

    def save() -> None:
        target.write_text(json.dumps(report, indent=1))

    save()
    if not args.skip_tests:
        start = time.monotonic()
        code, tail = run_tests(args.out, only)
        report["tests"] = {"exit": code, "seconds": round(time.monotonic() - start, 1), "tail": tail.splitlines()[-1:]}
        save()
        say(tail[-3500:] if code else tail.splitlines()[-1])
        if code != 0:
            say("tests failed: nothing is timed")
            return 1
    figures: list[bench.Figure] = []
    for op in only:
        module = importlib.import_module(f".{op}.bench", __package__)
        for rows in rows_of:
            with torch.no_grad():
                figures += bench.measure(module.cases(rows, torch.device("cuda", 0), args.compile))
            report["figures"] = bench.as_json(figures)
            save()
    if args.chains:
        chain = importlib.import_module(".chain.bench", __package__)
        for rows in rows_of:
            with torch.no_grad():
                figures += bench.measure(chain.cases(rows, torch.device("cuda", 0), args.compile))
            report["figures"] = bench.as_json(figures)
            save()
    report["provenance_after"] = bench.provenance()
    save()
    say(bench.table(figures))
    report["sanitizer"] = [sanitize(args.out, tool) for tool in args.sanitize.split(",") if tool]
    save()
    say(json.dumps(report["sanitizer"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
