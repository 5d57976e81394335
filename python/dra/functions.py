"""Memories and attention as functions of arrays, with gradients.

    y, S = dra.functions.delta(q=q, k=k, v=v, b=b)
    grads = dra.functions.delta.gradient(dict(q=q, k=k, v=v, b=b), dict(y=dy))

B batch, T time, H heads, F width of keys, E width of values. Inputs are arrays of the library's
real type, NumPy's or those of a library with DLPack, also on a GPU (then results are a
`dra.arrays.Array` there, which that library takes by DLPack); `mark` and intervals are int32. A
state that is given is continued; the one that is returned continues the next call. `dra.torch` has
the same functions for PyTorch.
"""
import ctypes
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from . import _c, arrays
from ._library import REAL, Handle, as_array, lib
from .errors import DeviceError, DTypeError, InvalidValue, ShapeError
from .opening import open_device
from .programs import (KINDS, Declared, Recipe, Shape, Shapes, Values, places, program, shape_of)

NONE = _c.dra_value()


class Form(NamedTuple):
    """A function: its inputs ("name", "name?" where it may be missing, "name:i" of int32 and
    "name:b" of bool), its outputs ("name!" has no gradient), options with their defaults."""
    name: str
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    options: Dict[str, float]
    build: Callable[[int, Values, Mapping[str, float]], Sequence["_c.dra_value"]]
    shapes: Callable[[Shapes, Mapping[str, float]], Sequence[Shape]]

    def names(self) -> List[str]:
        return [i.split(":")[0].rstrip("?") for i in self.inputs]

    def needed(self) -> List[str]:
        return [i for i in self.inputs if "?" not in i and ":" not in i]

    def kind(self, name: str) -> str:
        """"" of reals, "i", "b"."""
        for i in self.inputs:
            if i.split(":")[0].rstrip("?") == name:
                return i.split(":")[1] if ":" in i else ""
        raise InvalidValue("%s: there is no input %s" % (self.name, name))

    def results(self) -> List[str]:
        return [o.rstrip("!") for o in self.outputs]

    def smooth(self) -> List[str]:
        return [o for o in self.outputs if not o.endswith("!")]


    def recipe(self, shapes: Shapes, options: Mapping[str, float], upstream: Sequence[str] = (),
               wanted: Sequence[str] = (), outputs: bool = True) -> Recipe:
        """The function for inputs of these shapes, its gradients for `upstream` ones, or both."""
        def declare(g: int) -> Declared:
            values = {n: lib.dra_input(g, n.encode(), KINDS[self.kind(n)][0], shape_of(s))
                      for n, s in shapes.items()}
            made = self.build(g, {n: values.get(n, NONE) for n in self.names()}, options)
            return Declared(values, dict(zip(self.results(), made)))

        key = (self.name, tuple(sorted(shapes.items())), tuple(sorted(options.items())))
        return Recipe(key, declare, tuple(upstream), tuple(wanted), outputs)


# ---- as functions of arrays ----------------------------------------------------------------------

class Function:
    """A form as a function of NumPy arrays by name."""

    def __init__(self, form: Form, about: str) -> None:
        self.form = form
        self.__doc__ = about
        self.__name__ = form.name

    def _take(self, given: Mapping[str, Any]) -> Tuple[Dict[str, Any], Tuple[int, int]]:
        """Arrays as they are, and the device that they are on."""
        out: Dict[str, Any] = {}
        kinds = set()
        for name, x in given.items():
            if x is None:
                continue
            what = "%s: %s" % (self.form.name, name)
            kind = tuple(int(n) for n in x.__dlpack_device__()) \
                if hasattr(x, "__dlpack_device__") else (arrays.CPU, 0)
            kinds.add(kind)
            x = as_array(x, what) if kind[0] == arrays.CPU else arrays.take(x, what)
            dtype = KINDS[self.form.kind(name)][1]
            if x.dtype != dtype:
                raise DTypeError("%s: expected an array of %s, found %s" % (what, dtype, x.dtype))
            out[name] = np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x
        for name in self.form.needed():
            if name not in out:
                raise InvalidValue("%s: expected %s" % (self.form.name, name))
        if len(kinds) > 1:
            raise DeviceError("%s: expected arrays of one device, found %s" % (
                self.form.name, ", ".join(sorted(map(arrays.name_of, kinds)))))
        return out, kinds.pop()

    def _split(self, given: Mapping[str, Any]) -> Tuple[Dict[str, Any], Dict[str, float]]:
        options = {k: float(given.get(k, v)) for k, v in self.form.options.items()}
        return {k: v for k, v in given.items() if k not in options}, options

    def __call__(self, **given: Any) -> Any:
        """Its outputs in order; alone where there is one."""
        inputs, options = self._split(given)
        taken, kind = self._take(inputs)
        shapes = {n: a.shape for n, a in taken.items()}
        p = program(self.form.recipe(shapes, options), _device_of(kind))
        out = {n: _empty(s, kind) for n, s in
               zip(self.form.results(), self.form.shapes(shapes, options))}
        p.run(places(taken), places(out))
        return tuple(out.values()) if len(out) > 1 else out[self.form.results()[0]]

    def gradient(self, given: Mapping[str, Any], upstream: Mapping[str, Any]) -> Dict[str, Any]:
        """What each input of reals changes, for upstream gradients of outputs by name."""
        inputs, options = self._split(given)
        taken, kind = self._take(inputs)
        shapes = {n: a.shape for n, a in taken.items()}
        expected = dict(zip(self.form.results(), self.form.shapes(shapes, options)))
        dy = {}
        for name, x in upstream.items():
            if name not in self.form.smooth():
                raise InvalidValue("%s: %s has no gradient" % (self.form.name, name))
            what = "%s: the gradient of %s" % (self.form.name, name)
            x = as_array(x, what) if kind[0] == arrays.CPU else arrays.take(x, what)
            if x.dtype != REAL or tuple(x.shape) != expected[name]:
                raise ShapeError("%s is %s %s, expected %s %s" % (what, x.dtype, tuple(x.shape),
                                                                  REAL, expected[name]))
            dy["d." + name] = np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x
        wanted = [n for n in shapes if self.form.kind(n) == ""]
        p = program(self.form.recipe(shapes, options, tuple(upstream), wanted, False),
                    _device_of(kind))
        out = {n: _empty(shapes[n], kind) for n in wanted}
        p.run(places({**taken, **dy}), places({"grad." + n: x for n, x in out.items()}))
        return out

    def __repr__(self) -> str:
        return "<dra.functions.%s(%s)>" % (self.form.name, ", ".join(self.form.inputs))


def _device_of(kind: Tuple[int, int]) -> Handle:
    return open_device(arrays.name_of(kind), 0)


def _empty(shape: Shape, kind: Tuple[int, int]) -> Any:
    return np.empty(shape, REAL) if kind[0] == arrays.CPU else arrays.empty(shape, REAL, kind)


# ---- the forms -----------------------------------------------------------------------------------

def _config(kind: Any, values: Values, names: Sequence[str], **more: Any) -> Any:
    return kind(**{n: values[n] for n in names if values[n].id}, **more)


def _outer(s: Shapes) -> Tuple[Shape, Shape]:
    """Of y (B, T, H, E) and of S (B, H, F, E)."""
    B, T, H, F = s["k"]
    E = s["v"][-1]
    return (B, T, H, E), (B, H, F, E)


def _build_delta(g: int, v: Values, o: Mapping[str, float]) -> Sequence[Any]:
    last = _c.dra_value()
    c = _config(_c.dra_delta_config, v, ("q", "k", "v", "b", "l", "S", "mark", "recall", "replace"))
    return lib.dra_delta(g, ctypes.byref(c), ctypes.byref(last)), last


def _build_moment(g: int, v: Values, o: Mapping[str, float]) -> Sequence[Any]:
    S, z = _c.dra_value(), _c.dra_value()
    c = _config(_c.dra_moment_config, v, ("q", "k", "v", "l", "S", "z", "u", "mark"),
                normalise=bool(o["normalise"]), eps=o["eps"], least=o["least"])
    y = lib.dra_moment(g, ctypes.byref(c), ctypes.byref(S),
                       ctypes.byref(z) if o["normalise"] else None)
    return (y, S, z) if o["normalise"] else (y, S)


def _moment_shapes(s: Shapes, o: Mapping[str, float]) -> Sequence[Shape]:
    y, S = _outer(s)
    return (y, S, S[:3]) if o["normalise"] else (y, S)


def _build_wkv(g: int, v: Values, o: Mapping[str, float]) -> Sequence[Any]:
    first, last = (_c.dra_value * 3)(v["A"], v["B"], v["p"]), (_c.dra_value * 3)()
    y = lib.dra_wkv(g, v["k"], v["v"], v["w"], v["u"],
                    first if v["A"].id else None, v["mark"], last)
    return y, last[0], last[1], last[2]


def _build_ema(g: int, v: Values, o: Mapping[str, float]) -> Sequence[Any]:
    last = _c.dra_value()
    return lib.dra_ema(g, v["x"], v["beta"], v["w"], v["start"], v["mark"],
                       ctypes.byref(last)), last


def _ema_shapes(s: Shapes, o: Mapping[str, float]) -> Sequence[Shape]:
    (B, T, N), M = s["x"], s["beta"][0]
    return ((B, T, N) if "w" in s else (B, T, M, N)), (B, M, N)


def _build_gru(g: int, v: Values, o: Mapping[str, float]) -> Sequence[Any]:
    h, last = _c.dra_value(), _c.dra_value()
    cell = _config(_c.dra_gru_cell, v, ("x", "w", "b", "beta", "start"))
    lib.dra_gru(g, 1, ctypes.byref(cell), v["mark"], ctypes.byref(h), ctypes.byref(last))
    return h, last


def _build_lstm(g: int, v: Values, o: Mapping[str, float]) -> Sequence[Any]:
    h, last, c = _c.dra_value(), _c.dra_value(), _c.dra_value()
    cell = _config(_c.dra_lstm_cell, v, ("x", "w", "b", "beta", "start_h", "start_c"))
    lib.dra_lstm(g, 1, ctypes.byref(cell), v["mark"], ctypes.byref(h), ctypes.byref(last),
                 ctypes.byref(c))
    return h, last, c


def _build_slots(g: int, v: Values, o: Mapping[str, float]) -> Sequence[Any]:
    P, Q = _c.dra_value(), _c.dra_value()
    c = _config(_c.dra_slots_config, v, ("q", "k", "v", "l", "u", "P", "Q", "mark"),
                read=int(o["read"]))
    return lib.dra_slots(g, ctypes.byref(c), ctypes.byref(P), ctypes.byref(Q)), P, Q


def _slots_shapes(s: Shapes, o: Mapping[str, float]) -> Sequence[Shape]:
    B, T, H, D = s["q"]
    E, S = s["v"][-1], s["l"][-1]
    return ((B, T, 1 if o["read"] == _c.DRA_READ_POOLED else H, E), (B, H, S, D), (B, H, S, E))


def _build_attend(g: int, v: Values, o: Mapping[str, float]) -> Sequence[Any]:
    c = _config(_c.dra_attend_config, v, ("lo", "hi", "mask", "bias", "slopes", "sink"),
                scale=o["scale"], softcap=o["softcap"])
    return (lib.dra_attend(g, v["q"], v["k"], v["v"], ctypes.byref(c)),)


def _cell_shapes(gates: int, states: int) -> Callable[[Shapes, Mapping[str, float]], Sequence[Any]]:
    def shapes(s: Shapes, o: Mapping[str, float]) -> Sequence[Shape]:
        B, T, H, D = s["x"]
        return ((B, T, H, D // gates),) + ((B, H, D // gates),) * states
    return shapes


delta = Function(Form(
    "delta", ("q", "k", "v", "b?", "l?", "S?", "recall?", "replace?", "mark?:i"), ("y", "S"), {},
    _build_delta, lambda s, o: _outer(s)),
    "The delta rule: q, k (B, T, H, F), v (B, T, H, E), b (B, T, H), l ln of decays; or recall and "
    "replace (B, T, H, F) in place of b. y (B, T, H, E), S (B, H, F, E).")

moment = Function(Form(
    "moment", ("q", "k", "v", "l?", "S?", "z?", "u?", "mark?:i"), ("y", "S", "z"),
    {"normalise": 0, "eps": 0, "least": 0}, _build_moment, _moment_shapes),
    "Sums of outer products that fade (linear attention, retention, RWKV 5 and 6): shapes as of "
    "delta, u (H, F) a bonus; z (B, H, F) only with normalise=True.")

wkv = Function(Form(
    "wkv", ("k", "v", "w", "u", "A?", "B?", "p?", "mark?:i"), ("y", "A", "B", "p!"), {}, _build_wkv,
    lambda s, o: (s["k"],) + ((s["k"][0], s["k"][2]),) * 3),
    "The wkv of RWKV-4: k, v (B, T, C), w < 0 and u (C); the state is A, B and p (B, C).")

ema = Function(Form(
    "ema", ("x", "beta", "w?", "start?", "mark?:i"), ("y", "last"), {}, _build_ema, _ema_shapes),
    "Running means on M timescales: x (B, T, N), beta (M, N), w (M, N).")

gru = Function(Form(
    "gru", ("x", "w", "b?", "beta?", "start?", "mark?:i"), ("h", "last"), {}, _build_gru,
    _cell_shapes(3, 1)),
    "GRU cells: x (B, T, H, 3D), w (3D, D) or (H, 3D, D), b; h (B, T, H, D), last (B, H, D).")

lstm = Function(Form(
    "lstm", ("x", "w", "b?", "beta?", "start_h?", "start_c?", "mark?:i"), ("h", "last_h", "last_c"),
    {}, _build_lstm, _cell_shapes(4, 2)),
    "LSTM cells, gates in the order i, f, n, o: x (B, T, H, 4D), w (4D, D) or (H, 4D, D), b.")

slots = Function(Form(
    "slots", ("q", "k", "v", "l", "u", "P?", "Q?", "mark?:i"), ("y", "P", "Q"), {"read": 0},
    _build_slots, _slots_shapes),
    "S slots a head and a softmax over them: q, k (B, T, H, D), v (B, T, H, E), l, u (B, T, H, S) "
    "or (H, S). read 0: a head's own slots, 1: those of all heads, 2: pooled.")

attend = Function(Form(
    "attend", ("q", "k", "v", "bias?", "slopes?", "sink?", "lo?:i", "hi?:i", "mask?:b"), ("y",),
    {"scale": 0, "softcap": 0}, _build_attend, lambda s, o: (s["q"][:3] + s["v"][3:],)),
    "Softmax attention: q (B, H, T, D), k, v (B, K, J, ...), K dividing H. A query sees keys "
    "lo <= j < hi, int32 (B, T), where mask, bool, is true.")

#: All of them by name.
ALL = {f.form.name: f for f in (delta, moment, wkv, ema, gru, lstm, slots, attend)}
