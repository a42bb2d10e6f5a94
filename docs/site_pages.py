"""Hooks of MkDocs: pages keep their places in the repository, so that their links lead where they do there.

The site also gets a page per script, a page per room of `tlm_ray`, and one of the names in `tlm_ray/__init__.pyi`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
COPIED = ("*.md", "docs/*.md", "cluster/*", "experiments/*.png", "notebooks/*.ipynb")
ROOMS = ("corpus", "evaluation", "retrieval", "training", "plain", "serving", "runs", "report", "storage", "parallel")
SCRIPTS = [path for folder in ("experiments", "benchmarks") for path in sorted((ROOT / folder).glob("*.py"))]
SCRIPT = re.compile(rf"`(?:experiments/|benchmarks/)?({'|'.join(path.stem for path in SCRIPTS)})\.py`")
FOLDERS = {path.stem: path.parent.name for path in SCRIPTS}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by those of the repository's root, and add the generated pages."""
    for file in files.documentation_pages():
        files.remove(file)
    for path in [path for pattern in COPIED for path in sorted(ROOT.glob(pattern))]:
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for uri, content in generated():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Link the scripts that a page names to their source, and let Markdown in HTML be Markdown, as on GitHub."""
    up = "../" * page.file.src_uri.count("/")
    linked = SCRIPT.sub(lambda match: f"[{match[0]}]({up}{FOLDERS[match[1]]}/{match[1]}.md)", markdown)
    return linked.replace("<details>", '<details markdown="1">')


def generated() -> Iterator[tuple[str, str]]:
    """Yield the path and the Markdown of each page that is made from Python files."""
    yield "reference/names.md", names()
    for room in ROOMS:
        yield f"reference/{room}.md", f"# tlm_ray.{room}\n\n" + "".join(map(reference, modules(room)))
    for path in SCRIPTS:
        name = path.relative_to(ROOT)
        yield f"{name.with_suffix('.md')}", f"# {name}\n\n```python\n{path.read_text()}```\n"


def names() -> str:
    """Return the page of the names that `tlm_ray` exports."""
    stub = ast.parse((ROOT / "tlm_ray" / "__init__.pyi").read_text())
    exported = sorted(name.name for node in stub.body if isinstance(node, ast.ImportFrom) for name in node.names)
    return "# Names of tlm_ray\n\n" + "".join(f"::: tlm_ray.{name}\n\n" for name in exported)


def modules(room: str) -> list[Path]:
    """Return the modules of a room, a package before its modules; empty files are no page's."""
    return sorted((path for path in (ROOT / "tlm_ray" / room).rglob("*.py") if path.stat().st_size), key=dotted)


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def reference(path: Path) -> str:
    """Return what mkdocstrings shows of a module; of a package, only what is defined in its own file."""
    if path.stem != "__init__":
        return f"::: {dotted(path)}\n\n"
    nodes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef | ast.AnnAssign)]
    own = ", ".join(node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node.target) for node in nodes)
    return f"::: {dotted(path)}\n    options: {{members: [{own}]}}\n\n"
