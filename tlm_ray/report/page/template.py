"""Load the page's files: templates with autoescape, a style sheet and a script."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tlm_ray.report.formats import ABSENT, cut, human
from tlm_ray.report.tables.grids import size_text, time_text


def render(template: str, **values: Any) -> str:
    """Render a template to a self-contained page, with the style sheet and the script inlined."""
    return _environment().get_template(template).render(values | {"style": stylesheet(), "script": _raw("page.js")})


def render_element(template: str, **values: Any) -> str:
    """Render a template to an element for a notebook, with a style sheet that concerns this element alone."""
    style = Markup(".tlm-ray{{{}\n{}}}\n{}").format(_raw("colours.css"), _raw("parts.css"), _raw("element.css"))
    return _environment().get_template(template).render(values | {"style": style})


def stylesheet() -> Markup:
    """Return the style sheet of pages."""
    colours = Markup(":root{{color-scheme:light dark;{}}}\n").format(_raw("colours.css"))
    return colours + _raw("parts.css") + _raw("page.css")


def _raw(name: str) -> Markup:
    loader = _environment().loader
    assert loader is not None, "templates come from this package"
    return Markup(loader.get_source(_environment(), name)[0])


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("tlm_ray.report.page", "files"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"size": size_text, "time": time_text, "flops": _flops, "count": _count, "cut": cut}
    return made


def _flops(value: float) -> str:
    return human(value) if value else ABSENT


def _count(value: int | None) -> str:
    return ABSENT if value is None else f"{value:,}"
