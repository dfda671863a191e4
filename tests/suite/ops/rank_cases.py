"""Cases of the ops that several ranks run together, of one rank: what several exchange is tested
with several (tests/unit/cpu/RanksTest.cpp)."""
import numpy as np

from reference import add, f, ints


def part(x, axis, unit, units):
    """Those units of an axis beside each other; -1, and what is missing of the last, are zeros."""
    moved = np.moveaxis(x, axis, 0)
    out = np.zeros((len(units) * unit, *moved.shape[1:]), x.dtype)
    for i, u in enumerate(units):
        some = moved[u * unit:(u + 1) * unit] if u >= 0 else moved[:0]
        out[i * unit:i * unit + len(some)] = some
    return np.moveaxis(out, 0, axis)


def of_ranks():
    for x in (f(3, 4), f(2, 0, 5), f(2, 3).astype(np.float16)):
        add("all_reduce", f"one rank {x.shape} {x.dtype}", [x], [x], {"ranks": 1})
        add("all_gather", f"one rank {x.shape} {x.dtype}", [x], [x], {"ranks": 1, "axis": 1})
    for x, axis, unit, units in ((f(8, 3), 0, 2, [1, 2]), (f(3, 8), 1, 2, [3, 0, -1, 1]),
                                 (f(7, 2).astype(np.float16), 0, 3, [2, 0]),
                                 (ints(2, 6, 2, dtype=np.int8), -2, 1, [5, 5, 0])):
        add("rank_part", f"{x.shape} {x.dtype} units {units} of {unit}", [x],
            [part(x, axis, unit, units)],
            {"axis": axis, "unit": unit, "units": units, "ranks": 1})
