"""Count the floating-point operations of training steps as torch's counter does, at almost no cost per step.

The operations of a matrix product are a monomial of the batch's sizes: rows, width, predictions and padded predictions.
So each kind of step is counted once, with meta tensors, on a batch whose sizes are primes that divide no size of the
model. Dividing these primes out of a product's count gives its coefficient and exponents. Afterwards a step's count is
a sum of a few terms.
"""

import copy
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count, islice
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from tlm_ray.training.kernels.projected_losses import ROWS_TO
from tlm_ray.training.objectives import Prediction, Targets
from tlm_ray.training.sampler.batches import Batch

MEASURED_S = 0.05  # size of the products that measure a device's rate
# rows, width and, per token-predicting objective, predictions and padded predictions; or their exponents in a term
Sizes = tuple[int, ...]
Terms = Counter[Sizes]  # coefficients by exponents
RESULTS: dict[Any, Any] = {}  # by operation and sizes: meta tensors alone, so without data
SETTINGS = (bool, int, float, str, NoneType, torch.dtype, torch.device, torch.layout, torch.memory_format)


class Kind(NamedTuple):
    """What an objective predicts in a batch, except for the number."""

    name: str
    """name of the objective"""
    of_tokens: bool
    """whether it predicts tokens or rows"""
    shape: tuple[int, ...]
    """shape of one prediction's value"""
    dtype: str
    """numpy dtype of the values"""

    @classmethod
    def of(cls, name: str, targets: Targets) -> "Kind":
        """Return the kind of an objective's targets."""
        of_tokens = targets.chosen is not None
        return cls(name, of_tokens, targets.values.shape[1 + of_tokens :], targets.values.dtype.name)


class Flops:
    """Operations of a model's steps, forward and backward, without element-wise work and the optimizer.

    Attention counts as two products forward and four backward for every kernel, so counts do not depend on the device.
    All counts are 0 for an encoder whose operations are no such sum, because they depend on values or it folds its
    width. Source of the rules: torch.utils.flop_counter.
    """

    def __init__(self, model: nn.Module):
        self.model = _without_data(model)
        self.terms: dict[tuple[Kind, ...], Terms] = {}

    @property
    def unknown(self) -> list[str]:
        """The objectives whose operations could not be counted in some batch."""
        return sorted({kind.name for kinds, terms in self.terms.items() if not terms for kind in kinds})

    def computed(self, batch: Batch) -> int:
        """Return the operations of a batch, padding included."""
        rows, width = batch.tokens.shape
        filled = [places + -places % ROWS_TO for places in _places(batch)]
        return _value(self._terms(batch), np.full(rows, width), _places(batch), filled)

    def real(self, batch: Batch) -> int:
        """Return the operations of a batch's real tokens, without padding, except that of texts to write."""
        return _value(self._terms(batch), batch.attention.sum(axis=1), _places(batch), _places(batch))

    def _terms(self, batch: Batch) -> Terms:
        """Return the terms for a batch's kind: what it predicts per token and per row."""
        kinds = tuple(Kind.of(name, targets) for name, targets in batch.targets.items())
        if kinds not in self.terms:
            self.terms[kinds] = _count(self.model, kinds)
        return self.terms[kinds]


def _places(batch: Batch) -> list[int]:
    """Return the number of predicted tokens per token-predicting objective."""
    return [int(targets.chosen.sum()) for targets in batch.targets.values() if targets.chosen is not None]


def _value(terms: Terms, lengths: np.ndarray, places: list[int], filled: list[int]) -> int:
    """Return the sum of the terms, with each row's own length."""
    sizes = [size for pair in zip(places, filled, strict=True) for size in pair]
    total = 0
    for (rows, width, *powers), coefficient in terms.items():
        cells = int((lengths**width).sum()) if rows else int(lengths.max()) ** width
        total += coefficient * cells * math.prod(size**power for size, power in zip(sizes, powers, strict=True))
    return total


def _count(model: nn.Module, kinds: tuple[Kind, ...]) -> Terms:
    """Return the terms of one kind of step, if two batches agree on them, else none."""
    one, other = (_factored(_products(model, sizes, kinds), sizes) for sizes in islice(_prime_sizes(model, kinds), 2))
    return one if one == other and all(rows <= 1 for rows, *_ in one) else Counter()


def _products(model: nn.Module, sizes: Sizes, kinds: tuple[Kind, ...]) -> list[int]:
    """Return the operations of each product in a step of a model without data, for given batch sizes."""
    rows, width, *predicted = sizes
    integers: Any = {"dtype": torch.int64, "device": "meta"}
    inputs = {"input_ids": torch.empty(rows, width, **integers)}
    counts = iter(predicted[::2])
    predictions = {kind.name: _prediction(kind, next(counts) if kind.of_tokens else rows) for kind in kinds}
    with sdpa_kernel(SDPBackend.MATH), _Products() as products:
        try:
            sums = model(inputs, predictions)
            sum(sums.values()).backward()
        except (RuntimeError, IndexError, TypeError, ValueError):  # shapes or losses depend on values
            return []
    return products.found


def _prediction(kind: Kind, count: int) -> Prediction:
    """Return `count` predictions of a kind, without data."""
    dtype = torch.from_numpy(np.empty(0, kind.dtype)).dtype
    places = torch.empty(count, dtype=torch.int64, device="meta") if kind.of_tokens else None
    return Prediction(torch.empty(count, *kind.shape, dtype=dtype, device="meta"), places)


def _without_data(model: nn.Module) -> nn.Module:
    """Return a copy of a model with meta tensors, without dropout."""
    empty: dict[int, Any] = {
        id(p): nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad)
        for one in _models(model)
        for p in one.parameters()
    }
    buffers = {id(b): b.to("meta") for one in _models(model) for b in one.buffers()}
    return copy.deepcopy(model, empty | buffers).eval()


def _models(model: nn.Module) -> list[nn.Module]:
    """Return a model and the frozen models beside it, whose passes are operations too."""
    return [model, *getattr(model, "beside", ())]


class _Products(TorchDispatchMode):
    """Records operations of products for which torch's counter has a formula; any tensor value reads as False."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:  # such as whether a mask is full
            return False
        result = _result(func, args, kwargs or {})
        if formula := flop_registry.get(func.overloadpacket):
            self.found.append(formula(*args, **(kwargs or {}), out_val=result))
        return result


def _result(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return an operation's result; if it is of meta tensors, torch works out each combination of sizes once.

    Torch finds the sizes of a layer norm in 5 ms, because it does so in Python. Layers and batches repeat them.
    """
    is_new = not func._schema.is_mutable and not any(one.alias_info for one in func._schema.returns)
    sizes = _sizes_of((args, sorted(kwargs.items()))) if is_new else None
    if sizes is None:
        return func(*args, **kwargs)
    if (func, sizes) not in RESULTS:
        result = func(*args, **kwargs)
        if _sizes_of(result) is None:  # with data, such as a range of numbers on the CPU
            return result
        RESULTS[func, sizes] = result
    return _anew(RESULTS[func, sizes])


def _sizes_of(value: Any) -> Any:
    """Return what decides the sizes of a result; None if there is a tensor with data, or something unknown."""
    if isinstance(value, list | tuple):
        sizes = tuple(map(_sizes_of, value))
        return None if None in sizes else sizes
    if isinstance(value, torch.Tensor):
        is_plain = value.is_meta and value.layout is torch.strided
        return (value.shape, value.stride(), value.dtype) if is_plain else None
    return (type(value), value) if isinstance(value, SETTINGS) else None  # with its type: 1, 1.0 and True are equal


def _anew(result: Any) -> Any:
    """Return a result with other meta tensors of the same sizes."""
    if isinstance(result, list | tuple):
        return type(result)(map(_anew, result))
    if isinstance(result, torch.Tensor):
        return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="meta")
    return result


def _prime_sizes(model: nn.Module, kinds: tuple[Kind, ...]) -> Iterator[Sizes]:
    """Yield batch sizes whose prime factors (besides ROWS_TO) are all distinct and divide no size of the model."""
    tensors = [tensor for one in _models(model) for tensor in (*one.parameters(), *one.buffers())]
    own = {size for tensor in tensors for size in tensor.shape}.union(*(kind.shape for kind in kinds))

    def is_free(n: int) -> bool:
        return all(n % d for d in range(2, n)) and all(size % n for size in own)

    primes = filter(is_free, count(5))
    for width in primes:
        sizes = [next(primes), width]
        for groups in islice(primes, sum(kind.of_tokens for kind in kinds)):
            filled = groups * ROWS_TO
            sizes += [next(filter(is_free, range(filled - ROWS_TO + 1, filled))), filled]
        yield tuple(sizes)


def _factored(products: Iterable[int], sizes: Sizes) -> Terms:
    """Return counts as terms: a coefficient times powers of the sizes."""
    terms: Terms = Counter()
    for product in products:
        exponents = []
        for size in sizes:
            power = 0
            while product % size == 0:
                product, power = product // size, power + 1
            exponents.append(power)
        terms[tuple(exponents)] += product
    return terms


@cache
def matmul_rate(device: str, precision: str) -> float:
    """Return the operations per second of a square matrix product on a device: the best of a few.

    precision: "fp32" or "bf16". It is measured once per process, in about 0.1 s, or 4 s where bf16 is emulated.
    """
    on_cpu = torch.device(device).type == "cpu"
    size, at_once = (1024, 1) if on_cpu else (4096, 10)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    square, seconds = torch.rand(size, size, device=device).to(dtype), [0.0]
    while len(seconds) < 3 or sum(seconds) < MEASURED_S:
        started = time.perf_counter()
        for _ in range(at_once):
            torch.mm(square, square)
        if not on_cpu:
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 * at_once / min(seconds[1:])
