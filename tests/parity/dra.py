"""A small ctypes wrapper over libdra: build a graph on numpy arrays, compile it, run it.

    lib = dra.Library("build/libdra.so")
    g = lib.graph()
    x = g.bind("input", "x", numpy.ones((2, 3), lib.real))   # or "parameter", "state"
    y = g.softmax(x)                                         # any builder listed in BUILDERS
    (dx,) = g.gradient([g.sum_all(y)], None, [x])
    print(g.compile(y=y, dx=dx).run()["dx"])

The structs mirror include/dra/*.h field by field. A mistake raises Error with the library's text.
"""
import ctypes
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_double, c_int, c_int32, c_int64
from ctypes import c_size_t, c_uint32, c_void_p

import numpy

MAX_RANK, MASKED = 6, -1e30
F32, F64, BF16, F16, I32, BOOL = range(6)
NUMPY = {F32: numpy.float32, F64: numpy.float64, BF16: numpy.uint16, F16: numpy.float16,
         I32: numpy.int32, BOOL: numpy.bool_}
ACTIVATIONS = "none sigmoid tanh relu relu2 gelu gelu_tanh silu elu softplus".split()
PLAIN, TILED = 1, 2          # dra_attend_path
HEADS_DIV, HEADS_MOD = 0, 1  # dra_head_map


class Error(Exception):
    """The library refused something; its text says what and why."""


# ---- structs ------------------------------------------------------------------------------------

def struct(name, /, **fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


CpuConfig = struct("CpuConfig", threads=c_int, level=c_char_p)
ErrorText = struct("ErrorText", code=c_int, text=c_char * 512)
Value = struct("Value", id=c_uint32)
Values = POINTER(Value)
Shape = struct("Shape", rank=c_int32, dim=c_int64 * MAX_RANK)
Axes = struct("Axes", n=c_int, axis=c_int * MAX_RANK, keep=c_bool)
Rotary = struct("Rotary", base=c_double, width=c_int64, stretch=c_double, halves=c_bool,
                xpos_base=c_double, xpos_center=c_double, xpos_invert=c_bool, scaling=c_int,
                factor=c_double, low=c_double, high=c_double, original=c_int64, exact=c_bool,
                gain=c_double, limit=c_int64, short_factors=c_void_p, long_factors=c_void_p,
                n_short=c_int, n_long=c_int)
CrossEntropy = struct("CrossEntropy", ignore=c_int32, use_ignore=c_bool, smoothing=c_double,
                      l2wrap=c_double)
Attend = struct("Attend", lo=Value, hi=Value, mask=Value, always=c_int64, bias=Value,
                slopes=Value, distance=Value, distance_zero=c_int64, q_pos=Value, k_pos=Value,
                previous=Value, mix_before=Value, mix_after=Value, cope=Value, selective=c_int64,
                taken=Value, taken_mark=Value, taken_last=Values, heads=c_int, scale=c_double,
                softcap=c_double, softcap_late=c_bool, q_level=Value, k_level=Value, pages=Value,
                sink=Value, dropout=c_double, random=c_void_p, topk=c_int64,
                topk_straight=c_bool, hard=c_bool, sigmoid=c_bool, path=c_int, scores=Values,
                lse=Values, weights=Values)
AdamW = struct("AdamW", beta1=c_double, beta2=c_double, eps=c_double, decay=c_double)
AdamWResult = struct("AdamWResult", p=Value, m=Value, v=Value)
ScanBody = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, Values, Values, Values, Values, Values)
Scan = struct("Scan", length=c_int64, carries=c_int, xs=c_int, constants=c_int, ys=c_int,
              carry=Values, x=Values, constant=Values, reverse=c_bool, border=c_int64,
              body=ScanBody, user=c_void_p)

# ---- functions ----------------------------------------------------------------------------------

# Builders by their arguments, one letter each: v value, V values (their number before them), i int,
# I array of int, l int64, d double, b bool, s shape, a axes, c config (None: NULL), t text.
BUILDERS = {
    "v": "stop_gradient copy neg abs sign exp expm1 log log1p sqrt rsqrt square reciprocal sin cos"
         " tanh erf sigmoid log_sigmoid softplus relu relu2 gelu gelu_tanh silu elu not sum_last"
         " sum_all argmax softmax log_softmax",
    "vv": "straight_through add sub mul div mod pow minimum maximum equal not_equal less"
          " less_equal greater greater_equal and or matmul embedding",
    "d": "number", "i": "integer", "l": "arange", "tis": "input parameter state",
    "vs": "reshape broadcast", "vI": "permute", "vii": "transpose", "vill": "slice",
    "vi": "cast activate glu flip", "vvv": "select linear write_rows", "vdd": "clamp affine",
    "va": "sum mean max logsumexp", "vl": "topk_threshold one_hot", "vib": "cumsum cummax",
    "Vi": "concat", "villd": "pad", "vil": "shift repeat", "vvi": "gather", "vvvi": "scatter_add",
    "vvvd": "layer_norm", "vvd": "rms_norm scale_norm", "vd": "unit unit_clamped clip_factor",
    "vlvvd": "group_norm", "vvc": "rotary token_losses cross_entropy",
    "vvvc": "linear_cross_entropy attend", "V": "global_norm", "vvvvvvvc": "adamw",
}
LETTERS = {name: letters for letters, names in BUILDERS.items() for name in names.split()}
TYPES = {"v": [Value], "V": [c_int, Values], "i": [c_int], "I": [POINTER(c_int)], "l": [c_int64],
         "d": [c_double], "b": [c_bool], "s": [Shape], "a": [Axes], "c": [c_void_p],
         "t": [c_char_p]}
# Functions that are no builders, by what they return; all take a handle first.
OTHERS = {
    "dtype_of": (c_int, [Value]), "output": (None, [c_char_p, Value]),
    "donate": (None, [c_char_p, Value, Value]),
    "gradient": (None, [c_int, c_void_p, c_void_p, c_int, c_void_p, c_void_p]),
    "scan": (None, [c_void_p, c_void_p, c_void_p]),
    "causal_interval": (None, [Value, c_int64, c_int64, c_int64, c_void_p, c_void_p]),
    "graph_destroy": (None, []), "program_destroy": (None, []), "buffers_destroy": (None, []),
}


def values(xs):
    """An array for C; None becomes the null value."""
    return (Value * len(xs))(*[x or Value() for x in xs])


def arguments(letter, x):
    """What C gets for one argument: as many things as TYPES[letter] has."""
    if letter == "v":
        return [x or Value()]
    if letter == "V":
        return [len(x), values(x)]
    if letter == "I":
        return [(c_int * len(x))(*x)]
    if letter == "s":
        return [Shape(len(x), (c_int64 * MAX_RANK)(*x))]
    if letter == "a":  # (axis, ...) or (axis, ..., "keep")
        axes = [axis for axis in x if axis != "keep"]
        return [Axes(len(axes), (c_int * MAX_RANK)(*axes), "keep" in x)]
    if letter == "c":
        return [x and ctypes.addressof(x)]
    return [x.encode()] if letter == "t" else [x]


class Library:
    """One build of the library, with a CPU device; threads 0: one per processor."""

    def __init__(self, path, threads=0):
        self.c, self.called, self.device = ctypes.CDLL(path), set(), c_void_p()
        for name, letters in LETTERS.items():
            self.declare(name, AdamWResult if name == "adamw" else Value,
                         [t for letter in letters for t in TYPES[letter]])
        for name, (result, types) in OTHERS.items():
            self.declare(name, result, types)
        self.check("device_create_cpu", byref(CpuConfig(threads)), byref(self.device))
        g = self.graph()
        self.dtype = self.call("dtype_of", g.c, g.number(0))  # DRA_REAL
        self.real = NUMPY[self.dtype]

    def declare(self, name, result, types):
        function = getattr(self.c, "dra_" + name)
        function.argtypes, function.restype = [c_void_p] + types, result

    def call(self, name, *args):
        self.called.add(name)
        return getattr(self.c, "dra_" + name)(*args)

    def check(self, name, *args):
        """Calls a function that returns a status and takes an error last."""
        error = ErrorText()
        if self.call(name, *args, byref(error)) != 0:
            raise Error(error.text.decode())

    def graph(self):
        handle = c_void_p()
        self.check("graph_create", byref(handle))
        return Graph(self, handle, owned=True)


class Graph:
    """A graph, or the body of a scan while it is built. Every builder is a method; one whose name
    is a word of Python ends in a _. Values and configs at the end may be left out."""

    def __init__(self, lib, handle, owned=False):
        self.lib, self.c, self.owned = lib, handle, owned
        self.arrays, self.kept = {}, []

    def __del__(self):
        if self.owned:
            self.lib.call("graph_destroy", self.c)

    def __getattr__(self, name):
        name = name.rstrip("_")
        if name not in LETTERS:
            raise AttributeError(f"no builder {name}")

        def build(*args):
            args += (None,) * (len(LETTERS[name]) - len(args))
            given = [arguments(letter, x) for letter, x in zip(LETTERS[name], args, strict=True)]
            return self.lib.call(name, self.c, *sum(given, []))
        return build

    def bind(self, kind, name, array):
        """An input, parameter or state with its memory, which a donated output changes."""
        self.arrays[name] = array
        dtype = next(d for d, t in NUMPY.items() if t == array.dtype)
        return getattr(self, kind)(name, dtype, array.shape)

    def gradient(self, y, dy, x):
        dx = values([None] * len(x))
        self.lib.call("gradient", self.c, len(y), values(y), dy and values(dy), len(x), values(x),
                      dx)
        return list(dx)

    def causal_interval(self, pos, B, T, window):
        lo, hi = Value(), Value()
        self.lib.call("causal_interval", self.c, pos or Value(), B, T, window, byref(lo), byref(hi))
        return {"lo": lo, "hi": hi}

    def scan(self, length, body, carry, x, constant, ys, reverse=False, border=0):
        """body(g, carry, x, constant) returns ([new carries], [ys]); so does this."""
        def call(step, user, c, s, k, carry_out, y):
            new, out = body(Graph(self.lib, step), c[:len(carry)], s[:len(x)], k[:len(constant)])
            for where, results in (carry_out, new), (y, out):
                for i, result in enumerate(results):
                    where[i] = result
        config = Scan(length, len(carry), len(x), len(constant), ys, values(carry), values(x),
                      values(constant), reverse, border, ScanBody(call), None)
        self.kept.append(config)  # the callback lives as long as the graph
        last, out = values(carry), values([None] * ys)
        self.lib.call("scan", self.c, byref(config), last, out)
        return list(last), list(out)

    def donate(self, name, value, state):
        self.lib.call("donate", self.c, name.encode(), value, state)

    def compile(self, **outputs):
        for name, value in outputs.items():
            self.lib.call("output", self.c, name.encode(), value)
        return Program(self, list(outputs))


class Program:
    """A compiled graph with its buffers; the arrays of Graph.bind stay bound."""

    def __init__(self, g, outputs):
        self.lib, self.arrays, self.outputs = g.lib, g.arrays, outputs
        self.program, self.buffers = c_void_p(), c_void_p()
        self.lib.check("compile", g.c, self.lib.device, byref(self.program))
        self.lib.check("buffers_create", self.program, byref(self.buffers))
        for name, array in self.arrays.items():
            assert array.flags.c_contiguous and array.flags.writeable, name

    def move(self, function, name, array):
        """put: to the device; get: from there."""
        self.lib.check(function, self.buffers, name.encode(), c_void_p(array.ctypes.data),
                       c_size_t(array.nbytes))

    def __del__(self):
        self.lib.call("buffers_destroy", self.buffers)
        self.lib.call("program_destroy", self.program)

    def run(self):
        """Computes; returns copies of the outputs by name. What was donated is in its array."""
        for name, array in self.arrays.items():
            self.move("put", name, array)
        self.lib.check("run", self.buffers)
        for name, array in self.arrays.items():
            self.move("get", name, array)
        return {name: self.result(name) for name in self.outputs}

    def result(self, name):
        dtype, shape = c_int(), Shape()
        self.lib.check("result_type", self.program, name.encode(), byref(dtype), byref(shape))
        array = numpy.empty(shape.dim[:shape.rank], NUMPY[dtype.value])
        self.move("get", name, array)
        return array
