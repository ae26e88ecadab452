"""The probe as one script: the modules of this package as text, and a small importer for them.

The host needs no file of ours: the script arrives on Python's standard input. A child process gets the same text.
"""

from __future__ import annotations

import os
import sys

PACKAGE = "kit.facts.host"

# Old interpreters must be able to parse this far, so that they can say what is wrong.
START = """
import sys
if sys.version_info < (3, 9):
    sys.stderr.write("b300kit: python3 is %d.%d, 3.9 or later is needed\\n" % sys.version_info[:2])
    sys.exit(3)
try:
    import importlib.util, ctypes, json, selectors, subprocess, threading
except ImportError as error:
    sys.stderr.write("b300kit: python3 is incomplete: %s; install the package python3\\n" % error)
    sys.exit(3)
class _Bundled:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in SOURCES:
            return None
        return importlib.util.spec_from_loader(name, cls(), is_package=name in PACKAGES)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(compile(SOURCES[module.__name__], module.__name__.replace(".", "/") + ".py", "exec"), module.__dict__)
sys.meta_path.insert(0, _Bundled)
sys.exit(importlib.import_module(ENTRY).main())
"""


def own_sources() -> dict[str, str]:
    """Module name -> text: from the running script on a host, from the files elsewhere."""
    running = getattr(sys.modules["__main__"], "SOURCES", None)
    if isinstance(running, dict):
        return running
    folder = os.path.dirname(os.path.abspath(__file__))
    found = {"kit": "", "kit.facts": ""}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                found[PACKAGE + ("" if name == "__init__.py" else "." + name[:-3])] = stream.read()
    return found


def script(entry: str, program: dict[str, str] | None = None) -> bytes:
    """A self-contained script that runs ``main()`` of one module of this package; ``program``: see ``cores.py``."""
    packages = {"kit", "kit.facts", PACKAGE}
    values = {"SOURCES": own_sources(), "PACKAGES": sorted(packages), "ENTRY": f"{PACKAGE}.{entry}", "PROGRAM": program}
    head = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    return (head + START).encode()
