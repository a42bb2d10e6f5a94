"""Machine instructions that numba does not offer."""

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

intrinsic: Any = extending.intrinsic  # else mypy wants the first parameter from every caller
BYTE, NUMBER, WORD = ir.IntType(8), ir.IntType(32), ir.IntType(64)
READ, KEEP, DATA = NUMBER(0), NUMBER(3), NUMBER(1)  # arguments of LLVM's prefetch: for reading, into all caches, data


@intrinsic
def prefetch(typing: Any, array: Any, place: Any) -> Any:
    """Prefetch the cache line of an array's element; an index outside the array does no harm."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), NUMBER, NUMBER, NUMBER])
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(hint, [_address(context, builder, signature, values, BYTE), READ, KEEP, DATA])
        return context.get_dummy_value()

    return types.void(array, place), generate


@intrinsic
def load_8_bytes(typing: Any, array: Any, place: Any) -> Any:
    """Load 8 bytes from an index on as a little-endian number; they must lie inside the array."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(_address(context, builder, signature, values, WORD), align=1)

    return types.uint64(array, place), generate


@intrinsic
def store_8_bytes(typing: Any, array: Any, place: Any, number: Any) -> Any:
    """Store a number in 8 bytes from an index on, little-endian; they must lie inside the array."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store(values[2], _address(context, builder, signature, values, WORD), align=1)
        return context.get_dummy_value()

    return types.void(array, place, types.uint64), generate


@intrinsic
def lowest_bit(typing: Any, number: Any) -> Any:
    """Return the position of a number's lowest set bit; the number must not be 0."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.cttz(values[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), generate


def _address(context: Any, builder: Any, signature: Any, values: Any, kind: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, value=values[0])
    return builder.bitcast(builder.gep(array.data, [values[1]]), kind.as_pointer())
