"""How a kernel calls out to the other workers of a chain: through the address of a C function, known at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from doublefeature._jit import kernel


@intrinsic
def _call(typing_context: Any, address: Any, rows: Any, row_bytes: Any, borders: Any) -> Any:
    """Call the function at an address with three numbers."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [number, number, number])
        builder.call(builder.inttoptr(args[0], function.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), codegen


@kernel
def gather(address: int, rows: Any, borders: NDArray[np.int64]) -> None:
    """Let every worker have all rows: worker r has filled rows borders[r], …, borders[r + 1] − 1.

    The function at the address is told where rows begin, how many bytes a row has, and where the borders are.
    """
    if rows.size > 0:
        row_bytes = rows.itemsize * (rows.size // rows.shape[0])
        _call(address, np.int64(rows.ctypes.data), np.int64(row_bytes), np.int64(borders.ctypes.data))
