"""One call on a GPU machine: check the library, test, then time, and write one JSON. An operator with a failed test is not timed.

python -m kernels.device_run OUT_FOLDER [--compile] [--sanitize] [--only boundary,stats] [--chains]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def say(text: str) -> None:
    """To standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


OPS = ("boundary", "stats", "gate", "qkv", "qkvproj", "oproj", "gemv", "head", "agree", "draw")


CHAINS = {"bench": {"boundary", "stats"}, "layer": {"boundary", "stats", "gate", "qkvproj", "oproj", "gemv"}}


def run_tests(out: Path, folder: str) -> dict[str, object]:
    """pytest over one folder, GPU required; exit code and last line. The whole output goes to OUT/tests_<folder>.txt."""
    command = [sys.executable, "-m", "pytest", "-q", "--maxfail=25", "-p", "no:cacheprovider", "-m", "gpu", "--tb=short"]
    environment = {**os.environ, "B300KIT_REQUIRE_GPU": "1", "PYTHONUNBUFFERED": "1"}
    start = time.monotonic()
    done = subprocess.run([*command, f"kernels/{folder}"], capture_output=True, text=True, check=False, env=environment)
    (out / "tests.txt").open("a").write(f"=== {folder}\n{done.stdout}{done.stderr}\n")
    lines = done.stdout.splitlines() or ["no output"]
    if done.returncode != 0:
        say("\n".join(line[:200] for line in lines if line.startswith(("E  ", "FAILED", "ERROR", "____")))[-3000:])
    say(f"{folder}: {lines[-1]}")
    return {"folder": folder, "exit": done.returncode, "last": lines[-1], "seconds": round(time.monotonic() - start, 1)}


def sanitize(out: Path, tool: str) -> dict[str, object]:
    """compute-sanitizer ``tool`` over one pass of every operator; its exit code and summary."""
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "kernels.exercise"]
    start = time.monotonic()
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=200)
    except subprocess.TimeoutExpired:
        return {"tool": tool, "exit": 124, "summary": ["not finished in 200 s: nothing is known"], "seconds": 200.0}
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
    parser.add_argument(
        "--chains", action="store_true", help="time the boundary chain and the layer chain too, with the layer's kernel budget"
    )
    parser.add_argument("--rows", default="1,6,8")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    only = tuple(op for op in args.only.split(",") if op)
    rows_of = tuple(int(r) for r in args.rows.split(","))

    import torch

    from .common import bench

    budgets: dict[str, object] = {}
    report: dict[str, object] = {
        "provenance": bench.provenance(), "tests": None, "sanitizer": [], "figures": [], "budgets": budgets,
    }  # fmt: skip
    target = args.out / "results.json"

    def save() -> None:
        target.write_text(json.dumps(report, indent=1))

    save()
    with ThreadPoolExecutor(6) as pool:  # the times are taken afterwards, alone
        checked = [pool.submit(sanitize, args.out, tool) for tool in args.sanitize.split(",") if tool]
        tests = list(pool.map(lambda folder: run_tests(args.out, folder), ("peers", *only)))
        report["sanitizer"] = [future.result() for future in checked]
    report["tests"] = tests
    save()
    passed = {str(t["folder"]) for t in tests if t["exit"] == 0}
    for op in only:
        if op not in passed:
            say(f"{op}: a test failed: not timed")
    figures: list[bench.Figure] = []
    for op in (op for op in only if op in passed):
        module = importlib.import_module(f".{op}.bench", __package__)
        for rows in rows_of:
            with torch.no_grad():
                figures += bench.measure(module.cases(rows, torch.device("cuda", 0), args.compile))
            report["figures"] = bench.as_json(figures)
            save()
    for name, needed in CHAINS.items() if args.chains else ():
        if not needed <= passed:
            say(f"chain {name}: not timed, not passed: {', '.join(sorted(needed - passed))}")
            continue
        chain = importlib.import_module(f".chain.{name}", __package__)
        for rows in rows_of:
            with torch.no_grad():
                figures += bench.measure(chain.cases(rows, torch.device("cuda", 0), args.compile))
                if name == "layer":
                    budgets[f"T={rows}"] = chain.timelines(rows, torch.device("cuda", 0))
            report["figures"] = bench.as_json(figures)
            save()
    report["provenance_after"] = bench.provenance()
    save()
    say(bench.table(figures))
    say(json.dumps(report["sanitizer"], indent=1))
    return 0 if passed == {*only, "peers"} else 1


if __name__ == "__main__":
    sys.exit(main())
