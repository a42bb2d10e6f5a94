"""The packages of the embedded corpus: which they are, and the prose of one of them."""

import hashlib
import importlib.metadata

import pyarrow as pa
import pytest

from tlm_ray.corpus.embedded import packages
from tlm_ray.corpus.embedded.packages import LIBRARIES, installed_packages, read_package

S = "This is one sentence of plain English that the filter has to let through."
FORMS = f"""A :class:`~a.b.Thing` and an :func:`f <a.f>` are **not** ``code`` in `the end` [1]_.

.. versionadded:: 1.2
    {S}

Parameters
----------
alpha : float, default=1
    The first of the numbers that are given to this function by name.

Args:
    size (`int`, *optional*):
        The size of the thing that is made, as a number of the rows in it.
    b: The other one of the two things that are to be given to it.

:param int count: How many of the things are in it, or none for all of them.
:type count: int or a thing that is in it, a rule
:returns: The sum of all that it was given, as a number of the same type.

See the example of this that is in the text::

    x = the code of a test that is not to be read by us, and so on

>>> this is the code of a test that is not to be read by us
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution of the given files, in a folder at the front of sys.path."""

    def write(name, files):
        root = tmp_path / name
        info = root / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))
        for path, source in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(source)
        monkeypatch.syspath_prepend(root)

    return write


def function(docstring):
    return f'def f():\n    r"""{docstring}"""\n'.encode()


def test_package_gives_each_passage_once_and_counts_what_is_not_python(install):
    other = S.replace("one", "another")
    install("demo", {
        "demo/b.py": function(S.upper().lower()),
        "demo/a.py": function(f"{other}\n\n{S}"),
        "demo/tests/test_a.py": function("A text that is in the tests of a package is not read."),
        "demo/broken.py": b"def f(:", "demo/null.py": b"a\0", "demo/latin.py": b'"""\xe9"""',
        "demo/data.txt": function(S),
    })  # fmt: skip
    table = read_package("demo")
    assert table.to_pydict() == {"text": [other, S], "source": ["demo", "demo"]}
    assert table.schema.metadata == {b"skipped_files": b"3"}


def as_bytes(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


# Bytes of the stage "documents", version 2. If they change, raise its version in tlm_ray/runs/flow/flow.py first.
def test_a_packages_prose_is_the_bytes_of_its_version(install):
    install("demo", {"demo/a.py": function(FORMS), "demo/b.py": function(S), "demo/broken.py": b"def f(:"})
    table = read_package("demo")
    assert len(table) == 8
    assert hashlib.sha256(as_bytes(table)).hexdigest()[:16] == "5ba2a2a13ebb91e1"


def test_package_without_prose_gives_an_empty_table_of_the_same_schema(install):
    install("demo", {"demo/__init__.py": b""})
    table = read_package("demo")
    assert table.num_rows == 0 and table.schema.types == [pa.string(), pa.string()]


def test_package_that_is_absent_or_has_no_files_is_an_error(install):
    install("demo", {"demo/data.txt": b""})
    with pytest.raises(ImportError, match=r"'demo' lists no Python file.*--force-reinstall demo"):
        read_package("demo")
    with pytest.raises(ImportError, match="no-such-package"):
        read_package("no-such-package")


def test_same_bytes_twice_in_any_file_order(monkeypatch):
    first = as_bytes(read_package("networkx"))
    distribution = importlib.metadata.distribution("networkx")
    files = sorted(distribution.files, key=lambda file: str(file)[::-1])
    monkeypatch.setattr(type(distribution), "files", files)
    assert as_bytes(read_package("networkx")) == first


def test_installed_packages_are_sorted_versions_that_others_do_not_change(install):
    before = installed_packages()
    install("unrelated", {"unrelated/__init__.py": function(S)})
    assert installed_packages() == before
    assert list(before) == sorted(before) and set(LIBRARIES) <= set(before)
    assert all(importlib.metadata.version(name) == version for name, version in before.items())


def test_missing_library_is_named_with_the_fix(monkeypatch):
    real = importlib.metadata.version

    def version(name):
        if name in ("sqlalchemy", "numpy", "click"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(packages.importlib.metadata, "version", version)
    with pytest.raises(ImportError, match=r"pip install numpy sqlalchemy$"):
        installed_packages()
