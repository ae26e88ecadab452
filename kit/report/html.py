"""The record of a run as one page: no script, no request, readable from a file on a plane."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from kit.record import read
from kit.report.clean import one_line
from kit.report.coremap import STYLE
from kit.report.view import PageView, page
from kit.report.words import moment, seconds

TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(run_dir: Path) -> str:
    """The page of a run, whatever state its record is in. Raises KitError(USAGE) when there is no such folder."""
    return render_page(page(read.show(run_dir), read.verify(run_dir), read.sums(run_dir)))


def render_page(view: PageView) -> str:
    """The page as text. Everything in ``view`` is escaped, but for the drawings, which escape their own texts."""
    return _template().render(page=view, style=Markup((TEMPLATES / "page.css").read_text() + STYLE))  # noqa: S704 - our own file


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["line"] = one_line
    environment.filters["moment"] = moment
    environment.filters["seconds"] = seconds
    # Drawings are made by kit.report.coremap, which escapes every text in them.
    environment.filters["drawing"] = lambda svg: Markup(svg)  # noqa: S704
    return environment.get_template("page.html.j2")
