"""Which room may import which, and what is done in one place only. Each rule is tried on a bad house too."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# any room may use them; they use no room
LEAVES = {
    "storage", "compute", "identity", "parallel", "notices", "ray_private", "console", "process", "events", "metrics",
    "command",
}  # fmt: skip
MAY_IMPORT = {
    "evaluation": LEAVES,
    "corpus": LEAVES | {"evaluation"},
    "retrieval": LEAVES | {"corpus"},
    "plain": LEAVES | {"evaluation", "corpus", "retrieval"},
    "training": LEAVES | {"evaluation", "corpus", "plain"},
    "serving": LEAVES | {"training"},
    "report": LEAVES | {"evaluation", "corpus", "retrieval"},
    "runs": LEAVES | {"evaluation", "corpus", "retrieval", "training", "plain", "report"},
    "storage": set(),
    "compute": set(),
    "identity": set(),
    "parallel": {"console", "process", "events", "metrics", "ray_private"},
    "notices": {"ray_private"},
    "ray_private": set(),
    "console": set(),
    "events": {"storage"},
    "metrics": set(),
    "process": set(),
    "command": set(),
    "": set(),
}
ONLY_IN = {"mlflow": "tlm_ray.runs.tracking.mlflow_store"}
COMMAND_LINE = {
    "tlm_ray.runs.cli.options",
    "tlm_ray.runs.cli.recipe_options",
    "tlm_ray.runs.cli.equal_cost_table",
    "tlm_ray.runs.cli.taught_table",
    "tlm_ray.runs.cli.table",
}  # experiments compose it; nothing below reads it
NEVER_IMPORTED = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
NEVER_CALLED = {"torch.load", "torch.save", "ray.init", "eval", "exec", "os.system"}
MAY_CALL = {"tlm_ray.runs.notebook.classifier": {"ray.init"}}  # there is no script where it is fitted
NEVER_TRUE = {"shell", "trust_remote_code", "allow_pickle"}

PATH_MODULES = {"pyarrow.fs", "shutil", "tempfile", "glob", "fsspec", "fnmatch"}
PATH_METHODS = {
    "read_text", "write_text", "read_bytes", "write_bytes", "iterdir", "rglob", "mkdir", "rmdir", "unlink", "touch",
    "exists", "is_file", "is_dir", "tofile",
}  # fmt: skip
PATH_CALLS = {
    "open", "io.open", "os.open", "os.remove", "os.unlink", "os.rename", "os.replace", "os.stat", "os.listdir",
    "os.scandir", "os.walk", "os.mkdir", "os.makedirs", "os.rmdir", "np.load", "np.save", "np.savez", "np.memmap",
    "np.fromfile", "pa.memory_map", "pa.OSFile", "pa.input_stream", "pa.output_stream", "load_file", "save_file",
}  # fmt: skip
OPEN_PATHS = {"tlm_ray.storage", "tlm_ray.storage.listing"}
WITHOUT_FOLDER_CIRCLES = {"corpus", "training", "runs"}
PURE = {
    "retrieval": ["engine", "methods", "contamination", "shards"],
    "training": [
        "tokens", "encoders", "objectives", "sampler", "model", "loop.trainer", "loop.optimizers", "loop.checkpoints",
        "scoring.prediction", "settings", "cost",
    ],
    "runs": ["recipes.paper", "stages.stage", "recipes.budget"],
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A module's dotted name and its syntax tree."""

    name: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.name.removeprefix("tlm_ray").removeprefix(".").partition(".")[0]

    @property
    def nodes(self) -> Iterator[ast.AST]:
        return ast.walk(self.tree)


def read_sources(package: Path) -> list[Source]:
    """All modules of a package; `__init__.py` is the package itself."""
    files = sorted(package.rglob("*.py"))
    names = [".".join(file.relative_to(package.parent).with_suffix("").parts) for file in files]
    return [Source(n.removesuffix(".__init__"), ast.parse(f.read_text())) for n, f in zip(names, files, strict=True)]


def imports(source: Source) -> set[str]:
    """Dotted names that a module imports, wherever in it: `from a import b` gives a and a.b."""
    found: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source.name}: import by the full name, not relative to the file"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def is_below(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def calls(source: Source) -> set[str]:
    """What a module calls, as it is written: `torch.load(...)` gives torch.load."""
    return {ast.unparse(node.func) for node in source.nodes if isinstance(node, ast.Call)}


def wrong_directions(sources: list[Source]) -> list[str]:
    found = []
    for source in sources:
        rooms = {name.split(".")[1] for name in imports(source) if name.startswith("tlm_ray.")}
        allowed = MAY_IMPORT.get(source.room, set()) | {source.room}
        found += [f"{source.name} imports {room}" for room in sorted(rooms - allowed)]
    return found


def modules(source: Source, known: set[str]) -> set[str]:
    """Modules that a module imports: `from package import module` is the module, not the package."""
    named = imports(source) & known
    froms = [n for n in source.nodes if isinstance(n, ast.ImportFrom)]
    whole = {
        str(n.module) for n in froms if all(f"{n.module}.{alias.name}" in known for alias in n.names)
    }  # packages of which only modules are taken
    return named - whole


def circles(sources: list[Source]) -> list[str]:
    """Files that import each other, directly or through others, wherever in them and for whatever reason."""
    names = {source.name for source in sources} - {"tlm_ray"}
    return in_circles(
        {source.name: modules(source, names) - {source.name} for source in sources if source.name in names}
    )


def folder_circles(sources: list[Source]) -> list[str]:
    """Folders that import each other, in rooms without such circles; a room's own files count as a folder."""
    rooms = [source for source in sources if source.room in WITHOUT_FOLDER_CIRCLES]
    packages = {source.name.rpartition(".")[0] for source in rooms}
    inner = {source.name: ".".join(source.name.split(".")[:3]) for source in rooms}
    folders = {name: folder if folder in packages else folder.rpartition(".")[0] for name, folder in inner.items()}
    graph: dict[str, set[str]] = {folder: set() for folder in folders.values()}
    for source in rooms:
        needs = {folders[name] for name in modules(source, set(folders))}
        graph[folders[source.name]] |= needs - {folders[source.name]}
    return in_circles(graph)


def in_circles(graph: dict[str, set[str]]) -> list[str]:
    """Nodes that are left after all that need nothing, or that nothing needs, are taken away, again and again."""
    while leaves := [name for name, needs in graph.items() if not needs & graph.keys()]:
        for name in leaves:
            del graph[name]
    while tops := [name for name in graph if not any(name in needs for needs in graph.values())]:
        for name in tops:
            del graph[name]
    return sorted(graph)


def imports_of_experiments(sources: list[Source]) -> list[str]:
    return [s.name for s in sources if any(is_below(name, "experiments") for name in imports(s))]


def imports_out_of_place(sources: list[Source]) -> list[str]:
    return [
        f"{source.name} imports {module}"
        for source in sources
        for module, place in ONLY_IN.items()
        if source.name != place and any(is_below(name, module) for name in imports(source))
    ]


def readers_of_the_command_line(sources: list[Source]) -> list[str]:
    known = COMMAND_LINE | {"tyro"}
    readers = [s.name for s in sources if any(is_below(name, module) for name in imports(s) for module in known)]
    return [name for name in readers if name not in COMMAND_LINE | {"tlm_ray"}]


def paths_opened(sources: list[Source]) -> list[str]:
    found = []
    for source in sources:
        if any(is_below(source.name, place) for place in OPEN_PATHS):
            continue
        through = [m for m in PATH_MODULES if any(is_below(name, m) for name in imports(source))]
        through += (calls(source) | imports(source)) & PATH_CALLS
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and node.attr in PATH_METHODS and ast.unparse(node.value) != "storage":
                through.append(ast.unparse(node))
        found += [f"{source.name}: {what}" for what in sorted(set(through))]
    return found


def dangers(sources: list[Source]) -> list[str]:
    found = []
    for source in sources:
        bad = {m for m in NEVER_IMPORTED if any(is_below(name, m) for name in imports(source))}
        bad |= (calls(source) | imports(source)) & NEVER_CALLED - MAY_CALL.get(source.name, set())
        for node in source.nodes:
            pairs = list(zip(node.keys, node.values, strict=True)) if isinstance(node, ast.Dict) else []
            named = {str(k.value): v for k, v in pairs if isinstance(k, ast.Constant)}
            named |= {str(node.arg): node.value} if isinstance(node, ast.keyword) else {}
            bad |= {f"{n}=True" for n in NEVER_TRUE & named.keys() if ast.unparse(named[n]) != "False"}
        found += [f"{source.name}: {what}" for what in sorted(bad)]
    return found


def hidden_names(sources: list[Source]) -> list[str]:
    """Modules that share their name with a function or class of theirs, or of their package's `__init__`."""
    shown = {source.name: exports(source) for source in sources}
    return [
        source.name
        for source in sources
        for package, _, module in [source.name.rpartition(".")]
        if module in defines(source) or module in shown.get(package, set())
    ]


def defines(source: Source) -> set[str]:
    return {node.name for node in source.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def exports(source: Source) -> set[str]:
    """What a module defines, or imports by name from elsewhere than its own files."""
    froms = [n for n in source.tree.body if isinstance(n, ast.ImportFrom) and n.module != source.name]
    return defines(source) | {alias.asname or alias.name for node in froms for alias in node.names}


@pytest.fixture(scope="module")
def house() -> list[Source]:
    return read_sources(ROOT / "tlm_ray")


def test_imports_point_one_way(house):
    assert wrong_directions(house) == []


def test_no_file_imports_itself_through_others(house):
    assert circles(house) == []


def test_no_folder_imports_itself_through_others(house):
    assert folder_circles(house) == []
    assert {s.room for s in house} >= WITHOUT_FOLDER_CIRCLES, "the rooms themselves must exist"


def test_nothing_in_the_package_imports_experiments(house):
    assert imports_of_experiments(house) == []


def test_no_function_of_the_package_takes_the_command_line(house):
    assert readers_of_the_command_line(house) == []
    assert {s.name for s in house} >= COMMAND_LINE, "the place itself must exist"


def test_one_module_imports_mlflow(house):
    assert imports_out_of_place(house) == []
    assert {s.name for s in house} >= set(ONLY_IN.values()), "the place itself must exist"


def test_one_package_opens_paths(house):
    assert paths_opened(house) == [], "use tlm_ray.storage or tlm_ray.storage.listing"


def test_nothing_connects_to_ray_unpickles_or_runs_foreign_code(house):
    assert dangers(house) == []
    assert {s.name for s in house} >= set(MAY_CALL), "the place itself must exist"


def test_no_module_is_hidden_by_a_name_it_exports(house):
    assert hidden_names(house) == []


@pytest.mark.slow
@pytest.mark.parametrize("room", PURE)
def test_pure_parts_load_neither_ray_nor_mlflow(room):
    names = [f"tlm_ray.{room}.{module}" for module in PURE[room]]
    heavy = ["ray", "mlflow"] + ["torch"] * (room != "training")
    code = f"import sys, {', '.join(names)}\nprint(*[name for name in {heavy} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert loaded.stdout.split() == []


BAD_HOUSE = {
    "corpus/reader.py": "def f():\n    from tlm_ray.training import loop\n",
    "storage.py": "import tlm_ray.corpus\nopen('here, and only here')\n",
    "runs/tracking/mlflow_store.py": "import mlflow.entities\n",
    "runs/other.py": "from mlflow import log_metric\nfrom experiments import main_table\n",
    "runs/sweeps/sweeping.py": "from tlm_ray.runs.cli.options import Data\n",
    "report/flags.py": "import tyro\n",
    "retrieval/disk.py": "from pathlib import Path\nimport os, pyarrow.fs as f\nopen('x')\nPath('x').read_text()\n",
    "training/danger.py": "import pickle, torch, ray\ntorch.load('x')\nray.init()\ng({'trust_remote_code': 1})\n",
    "training/shell.py": "import subprocess\nsubprocess.run('ls', shell=True)\nf(trust_remote_code=False)\n",
    "report/plan.py": "def plan(): ...\n",
    "plain/one.py": "from tlm_ray.plain.two import a\n",
    "plain/two.py": "def f():\n    from tlm_ray.plain import three\n",
    "plain/three.py": "import tlm_ray.plain.one\n",
    "plain/outside.py": "from tlm_ray.plain import one\n",
    "training/loop/one.py": "from tlm_ray.training.model.two import a\n",
    "training/model/two.py": "from tlm_ray.training.loop import three\n",
    "training/loop/three.py": "",
    "report/table.py": "rows = 1\n",
    "report/__init__.py": "from tlm_ray.report.plan import table\n",
}
FOUND_IN_BAD_HOUSE: list[tuple[Callable[[list[Source]], list[str]], list[str]]] = [
    (wrong_directions, ["tlm_ray.corpus.reader imports training", "tlm_ray.storage imports corpus"]),
    (circles, ["tlm_ray.plain.one", "tlm_ray.plain.three", "tlm_ray.plain.two"]),
    (folder_circles, ["tlm_ray.training.loop", "tlm_ray.training.model"]),
    (imports_of_experiments, ["tlm_ray.runs.other"]),
    (imports_out_of_place, ["tlm_ray.runs.other imports mlflow"]),
    (readers_of_the_command_line, ["tlm_ray.report.flags", "tlm_ray.runs.sweeps.sweeping"]),
    (paths_opened, [f"tlm_ray.retrieval.disk: {w}" for w in ("Path('x').read_text", "open", "pyarrow.fs")]),
    (
        dangers,
        [f"tlm_ray.training.danger: {w}" for w in ("pickle", "ray.init", "torch.load", "trust_remote_code=True")]
        + ["tlm_ray.training.shell: shell=True"],
    ),
    (hidden_names, ["tlm_ray.report.plan", "tlm_ray.report.table"]),
]


@pytest.mark.parametrize(("rule", "expected"), FOUND_IN_BAD_HOUSE, ids=lambda value: getattr(value, "__name__", ""))
def test_each_rule_finds_what_it_is_for(tmp_path, rule, expected):
    for name, text in BAD_HOUSE.items():
        file = tmp_path / "tlm_ray" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert rule(read_sources(tmp_path / "tlm_ray")) == expected
