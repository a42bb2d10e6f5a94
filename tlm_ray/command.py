"""The command `tlm`: run a script of `experiments/` by its name, from a checkout or an installed package."""

import ast
import difflib
import os
import pkgutil
import sys
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader as SourceLoader
from pathlib import Path

FIRST = {  # name and script, in the order of use
    "train": "train",
    "predict": "predict",
    "table": "main_table",
    "sweep": "sweep",
    "export": "export",
    "serve": "serve",
    "status": "status",
    "clean": "clean",
}
VIA = "TLM_COMMAND"  # set for the script, which then prints commands that begin with tlm


def main() -> None:
    """Replace this process by the script that the first word names, with the other words."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print(_usage())
        return
    scripts = scripts_by_name()
    if name == "completion":
        print(completion(scripts))
        return
    if name not in scripts:
        near = difflib.get_close_matches(name, scripts, n=1)
        raise SystemExit(f"tlm {name}: no such command{f'; did you mean {near[0]}?' if near else ''} (tlm --help)")
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, scripts[name].path, *words], os.environ | {VIA: "1"})


def scripts_by_name() -> dict[str, SourceLoader]:
    """Return the script of each command: first the usual ones, then the experiments by their own names."""
    package = Path(__file__).parent
    found = _scripts(package / "scripts") or _scripts(package.parent / "experiments")  # the latter in a checkout
    first = {name: found[script] for name, script in FIRST.items()}
    others = {name.replace("_", "-"): loader for name, loader in found.items() if name not in FIRST.values()}
    return first | others


def completion(names: Iterable[str]) -> str:
    """Return the code by which bash and zsh complete commands and options."""
    code = pkgutil.get_data("tlm_ray", "completion.bash") or b""
    return code.decode().replace("@COMMANDS@", " ".join(names))


def _scripts(folder: Path) -> dict[str, SourceLoader]:
    specs = [finder.find_spec(name, None) for finder, name, _ in pkgutil.iter_modules([str(folder)])]
    return {spec.name: spec.loader for spec in specs if spec and isinstance(spec.loader, SourceLoader)}


def _usage() -> str:
    """Return a line per command: the first line of its script."""
    lines = ["usage: tlm COMMAND [options]; tlm COMMAND --help lists the options", ""]
    for name, script in scripts_by_name().items():
        about = (ast.get_docstring(ast.parse(script.get_data(script.path))) or "").partition("\n")[0]
        lines += [""] * (len(lines) == 2 + len(FIRST)) + [f"  {name:<18}{about}"]
    return "\n".join([*lines, "", 'in bash or zsh, eval "$(tlm completion)" completes commands and options'])


if __name__ == "__main__":
    main()
