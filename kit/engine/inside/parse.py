"""Asks the installed SGLang's own argument parser about a command line. One JSON document in, one out; starts nothing.

In: ``{"arguments": [...], "max_batch": n or null}``. Out: ``{"version", "problems": [{"flag", "given", "said"}], "parsed": {...},
"graphs": [...] or null, "parsers": {"reasoning": [...], "tools": [...]}}``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from importlib.metadata import version
from typing import Any, NoReturn


class Refused(Exception):
    """What argparse would have printed before it ended the process."""


class Parser(argparse.ArgumentParser):
    """argparse, its refusals as exceptions."""

    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def groups(words: list[str]) -> list[list[str]]:
    """Each flag with its values."""
    out: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            out.append([word])
        elif out:
            out[-1].append(word)
        else:
            out.append([word])
    return out


def judge(parser: Parser, words: list[str]) -> list[dict[str, str]]:
    """Every flag by itself, so that all refusals are told at once; then all together."""
    problems = []
    known = parser._option_string_actions
    for group in groups(words):
        flag, given = group[0].split("=")[0], " ".join(group[1:])
        if flag not in known:
            near = [name for name in known if name.startswith(flag)]
            said = f"an abbreviation of {', '.join(near[:3])}" if near else "no such flag"
            problems.append({"flag": flag, "given": given, "said": said})
            continue
        deprecated = type(known[flag]).__name__.startswith("Deprecated")
        if deprecated:
            problems.append({"flag": flag, "given": given, "said": f"deprecated: {known[flag].help or ''}"})
        try:
            base = [] if flag in ("--model-path", "--model") else ["--model-path", "x"]
            with contextlib.redirect_stderr(io.StringIO()):
                parser.parse_args([*base, *group])
        except Refused as refused:
            problems.append({"flag": flag, "given": given, "said": str(refused)})
    return problems


def main() -> None:
    """Answer on standard output; whatever SGLang prints goes to standard error."""
    asked = json.load(sys.stdin)
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        from sglang.srt.server_args import ServerArgs

        parser = Parser(prog="sglang", allow_abbrev=False)
        ServerArgs.add_cli_args(parser)
        problems = judge(parser, asked["arguments"])
        answer: dict[str, Any] = {"version": version("sglang"), "problems": problems, "parsed": {}, "graphs": None}
        choices = {name: sorted(parser._option_string_actions[flag].choices or ()) for name, flag in PARSERS.items()}
        answer["parsers"] = choices
        if not problems:
            raw = parser.parse_args(asked["arguments"])
            answer["parsed"] = {name: value for name, value in vars(raw).items() if isinstance(value, PLAIN)}
            if asked.get("max_batch") is not None:
                answer["graphs"] = graphs(ServerArgs.from_cli_args(raw), asked["max_batch"])
    json.dump(answer, out)


PARSERS = {"reasoning": "--reasoning-parser", "tools": "--tool-call-parser"}
PLAIN = (str, int, float, bool, type(None), list)


def graphs(server_args: object, max_batch: int) -> list[int] | None:
    """The batch sizes that this version captures; None when it does not say."""
    try:
        from sglang.srt.arg_groups import cuda_graph_hook
    except ImportError:
        return None
    return list(cuda_graph_hook.generate_decode_cuda_graph_batch_sizes(server_args, max_batch))


if __name__ == "__main__":
    main()
