"""tlm_ray: task-driven language modeling (Yao et al., ICML 2022) on Ray.

Give it labelled texts and a huge general corpus. It retrieves the tiny part of the corpus that matters for the task,
trains an encoder from scratch on both, then on the task alone.

The words used everywhere:

    corpus      the general text, any size; cut into *passages* of about 128 word pieces
    task        labelled texts with train, dev and test splits; training texts serve as the *queries*
    neighbours  the passages that a method retrieved for the queries, each with its best *rank*
    k           passages kept per query
    depth       passages retrieved per query; any smaller k is a prefix
    general     retrieved data, as opposed to the *task*'s own data
    block       a row of token ids for training; a *batch* is the rows of one optimizer step
    rho1        general batches per task batch; rho2: weight of the MLM loss in a task batch
    stage one   masked language modelling on general and task data, and the task; stage two: the task alone
    recipe      every setting that changes a result; *execution* settings change none
    stage       a result identified by its inputs: `root/name/fingerprint`; complete once `record.json` exists

`__init__.pyi` lists the names. They are imported when they are first used, so that the pure parts (retrieval kernel,
batches, masking) load neither Ray nor MLflow.
"""

import ast
import pkgutil
from importlib import import_module
from typing import Any

__version__ = "0.1.0"
_STUB = ast.parse(pkgutil.get_data(__name__, "__init__.pyi") or b"")
_DOOR = {each.name: str(node.module) for node in _STUB.body if isinstance(node, ast.ImportFrom) for each in node.names}
__all__ = list(_DOOR)


def __getattr__(name: str) -> Any:
    if name not in _DOOR:
        raise AttributeError(f"module 'tlm_ray' has no attribute {name!r}")
    return getattr(import_module(_DOOR[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_DOOR])
