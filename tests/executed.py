"""Run the notebooks; as a script, keep their outputs, without what differs between machines and runs.

python tests/executed.py            # all of them, as they are
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
TIME = re.compile(r"\b\d[\d.,]* (s|min|h)\b")


def execute(notebook: Path, folder: Path, *, first: str = "", **parameters: Any) -> NotebookNode:
    """Return a notebook that was run in a folder, its parameters set as papermill sets them; first: run before it."""
    book = nbformat.read(notebook, as_version=4)
    place = next(i for i, cell in enumerate(book.cells) if "parameters" in cell.metadata.get("tags", []))
    if parameters:
        text = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
        book.cells.insert(place + 1, nbformat.v4.new_code_cell(text))
    if first:
        book.cells.insert(0, nbformat.v4.new_code_cell(first))
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(book, timeout=600, resources=where, record_timing=False).execute()
    return book


def texts_of(cell: NotebookNode) -> str:
    """Return all that a cell put out, one text after another."""
    return "\n".join(
        text
        for output in cell.get("outputs", [])
        for text in ([output.text] if "text" in output else output.get("data", {}).values())
    )


def tidy(book: NotebookNode, folder: Path) -> NotebookNode:
    """Return the notebook without logs, and with outputs that name neither this folder nor times nor versions."""

    def plain(text: str) -> str:
        return TIME.sub(r"… \1", text.replace(str(folder.resolve()), "."))

    for cell in book.cells:
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.get("outputs", []):
            if "text" in output:
                output.text = plain(output.text)
            for kind, text in output.get("data", {}).items():
                output.data[kind] = plain(text)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return book


if __name__ == "__main__":
    for each in NOTEBOOKS:
        if sys.argv[1:] and each.stem not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory(prefix="notebook-") as made:
            nbformat.write(tidy(execute(each, Path(made)), Path(made)), each)
        print(each.name)
