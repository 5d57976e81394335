"""Rows of a comparison with PyTorch: random inputs, an expression in dra, the same one in torch.

The float build is compared with float32, the double build with float64; gradients are those of all
real inputs under a random upstream. A difference is the largest one of a tensor, relative to the
tensor's largest element; a row shows the largest of all its tensors.
"""
import pathlib
import re
import sys
import zlib
from types import SimpleNamespace

import numpy
import torch

import dra

TOLERANCE = {numpy.float32: 2e-5, numpy.float64: 1e-10}
HEADER = pathlib.Path(__file__).parents[2] / "include/dra/ops.h"
NO_ROW = {"random_uniform", "random_normal", "dropout",  # their numbers are dra's own
          "ema", "gru", "wkv"}  # in memories.py
ROWS = []


# ---- random inputs: each is shape and a function of a generator ---------------------------------

def tensor(shape, draw):
    return SimpleNamespace(shape=shape, draw=draw)


def normal(*shape, scale=1.0):
    return tensor(shape, lambda r: r.normal(0, scale, shape))


def uniform(lo, hi, *shape):
    return tensor(shape, lambda r: r.uniform(lo, hi, shape))


def distinct(*shape):  # far enough apart for float32
    return tensor(shape, lambda r: r.permutation(numpy.prod(shape)).reshape(shape) / 100 - 5)


def ties(*shape):  # few different values
    return tensor(shape, lambda r: r.integers(-2, 3, shape).astype(float))


def singles(*shape, scale=1.0):  # exact in float32, also for the double build
    return tensor(shape, lambda r: r.normal(0, scale, shape).astype(numpy.float32).astype(float))


def ids(n, *shape, lowest=0):
    return tensor(shape, lambda r: r.integers(lowest, n, shape).astype(numpy.int32))


def flags(*shape, p=0.5):
    return tensor(shape, lambda r: r.random(shape) < p)


def fixed(array):
    return tensor(array.shape, lambda r: array.copy())


# ---- one row ------------------------------------------------------------------------------------

def add_row(name, inputs, measure):
    """measure(lib, random generator) returns the differences forward and of gradients, or None."""
    ROWS.append(SimpleNamespace(name=name, inputs=inputs, measure=measure))


def row(name, inputs, ours, theirs, constant=(), gradient=True):
    """ours(g, *values) and theirs(*tensors) return one result or several. No gradient is asked for
    the inputs numbered in `constant`, nor at all without `gradient`."""
    def measure(lib, r):
        data = arrays(lib, r, inputs)
        wanted = [i for i, a in enumerate(data) if a.dtype == lib.real and i not in constant]
        # Torch gets copies: nothing one side does can reach the other.
        x = [torch.tensor(a, requires_grad=a.dtype == lib.real) for a in data]
        y = several(theirs(*x))
        slopes = [i for i, t in enumerate(y) if gradient and t.requires_grad]
        up = arrays(lib, r, [normal(*y[i].shape) for i in slopes])
        results, dx = in_dra(lib, ours, data, wanted, slopes, up)
        if not slopes:
            return largest(results, y), None
        return largest(results, y), largest(dx, torch.autograd.grad(
            [y[i] for i in slopes], [x[i] for i in wanted], [torch.tensor(u) for u in up],
            materialize_grads=True))
    add_row(name, inputs, measure)


def in_dra(lib, ours, data, wanted, slopes, up):
    """Results, and gradients of the inputs `wanted` under upstreams `up` of results `slopes`."""
    g = lib.graph()
    x = [g.bind("input", f"x{i}", a) for i, a in enumerate(data)]
    dy = [g.bind("input", f"dy{i}", a) for i, a in enumerate(up)]
    y = several(ours(g, *x))
    dx = g.gradient([y[i] for i in slopes], dy, [x[i] for i in wanted]) if slopes else []
    results = g.compile(**{f"y{i}": v for i, v in enumerate(y)},
                        **{f"dx{i}": v for i, v in enumerate(dx)}).run()
    return [results[f"y{i}"] for i in range(len(y))], [results[f"dx{i}"] for i in range(len(dx))]


def arrays(lib, r, inputs):
    drawn = [numpy.asarray(i.draw(r)) for i in inputs]
    return [a.astype(lib.real if a.dtype == float else a.dtype, order="C") for a in drawn]


def several(results):
    return list(results) if isinstance(results, (tuple, list)) else [results]


def largest(ours, theirs):
    return max(difference(a, b.detach().numpy()) for a, b in zip(ours, theirs, strict=True))


def difference(ours, theirs, least=0.0):
    """The largest one, relative to the largest element, at least `least` (to 1 where all are 0)."""
    if ours.shape != theirs.shape or ours.dtype.kind != theirs.dtype.kind:
        raise dra.Error(f"{ours.dtype} {ours.shape}, in torch {theirs.dtype} {theirs.shape}")
    ours, theirs = ours.astype(numpy.float64), theirs.astype(numpy.float64)
    worst = numpy.abs(ours - theirs).max() / (max(numpy.abs(theirs).max(), least) or 1)
    return float(worst) if numpy.isfinite(worst) else numpy.inf


# ---- the table ----------------------------------------------------------------------------------

def shapes_text(inputs):
    text = ", ".join("x".join(map(str, i.shape)) or "scalar" for i in inputs)
    return text if len(text) <= 44 else text[:41] + "..."


def show(case, libraries, widths, columns):
    """Prints a row; returns whether it is within its tolerances."""
    line, bad = f"{case.name:<{widths[0]}}{shapes_text(case.inputs):<{widths[1]}}", ""
    for lib in libraries:
        try:
            found = case.measure(lib, numpy.random.default_rng(zlib.crc32(case.name.encode())))
        except Exception as error:  # a row that cannot run is a failed row
            found, bad = [None] * columns, f"  FAILED: {type(error).__name__}: {error}"
        if any(d is not None and not d <= TOLERANCE[lib.real] for d in found):
            bad = bad or "  FAILED"
        line += "".join("-".ljust(10) if d is None else f"{d:<10.1e}" for d in found)
    print(line.rstrip() + bad, flush=True)
    return not bad


def main(what="op", columns=("forward", "gradient"), header=HEADER):
    """Shows all rows, or those with the third argument in their name, and which of the builders in
    `header` (None: nothing) have none."""
    if len(sys.argv) not in (3, 4):
        sys.exit(f"usage: {sys.argv[0]} FLOAT_LIBRARY DOUBLE_LIBRARY [PART OF THE NAMES OF ROWS]")
    libraries = [dra.Library(path) for path in sys.argv[1:3]]
    cases = [c for c in ROWS if len(sys.argv) == 3 or sys.argv[3] in c.name]
    widths = [2 + max(map(len, texts), default=0) for texts in (
        [what] + [c.name for c in cases], ["shapes"] + [shapes_text(c.inputs) for c in cases])]
    print(f"largest relative difference, torch {torch.__version__}")
    print(" " * sum(widths) + "float".ljust(10 * len(columns)) + "double")
    print(f"{what:<{widths[0]}}{'shapes':<{widths[1]}}"
          + ("".join(f"{c:<10}" for c in columns) * 2).rstrip())
    passed = sum(show(case, libraries, widths, len(columns)) for case in cases)
    builders = set(re.findall(r"dra_(\w+)\(dra_graph \*g,", header.read_text() if header else ""))
    missing = builders - libraries[0].called - NO_ROW
    if missing and len(cases) == len(ROWS):
        print("without a row:", *sorted(missing))
    print(f"{passed} passed, {len(cases) - passed} failed")
    return 0 if 0 < passed == len(cases) else 1
