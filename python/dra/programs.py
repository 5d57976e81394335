"""Graphs of the library, compiled and run: of functions (dra.functions) and of modules (dra.modules).

A program reads memory that others have, by its address, and writes its outputs into such memory. One
that gives outputs and gradients runs in two parts: between them the caller finds what the gradients
of the outputs are, and nothing is computed twice.
"""
import ctypes
import os
import threading
import weakref
from collections import OrderedDict
from typing import (Any, Callable, Dict, Hashable, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple)

import numpy as np

from . import _c
from ._library import REAL, Handle, call, fail, lib, make
from .errors import BindError, DeviceError, ShapeError

Shape = Tuple[int, ...]
Shapes = Mapping[str, Shape]
Values = Mapping[str, "_c.dra_value"]
Place = Tuple[int, int]  #: address and bytes
Places = Mapping[str, Place]

#: dtypes by the kind of an input: real numbers, "i" of int32, "b" of bool.
KINDS = {"": (_c.DRA_F32 if REAL == np.float32 else _c.DRA_F64, REAL),
         "i": (_c.DRA_I32, np.dtype(np.int32)), "b": (_c.DRA_BOOL, np.dtype(np.bool_))}


class Declared(NamedTuple):
    """What a function has put into a graph, by names."""
    inputs: Dict[str, "_c.dra_value"]
    outputs: Dict[str, "_c.dra_value"]


class Recipe(NamedTuple):
    """What a program computes: outputs, gradients, or first the ones, then the others."""
    key: Hashable
    declare: Callable[[int], Declared]  #: given a graph
    upstream: Tuple[str, ...] = ()  #: outputs whose gradients come in, as "d.NAME"
    wanted: Tuple[str, ...] = ()  #: inputs whose gradients go out, as "grad.NAME"
    outputs: bool = True  #: whether the outputs themselves do


def shape_of(dims: Sequence[int]) -> "_c.dra_shape":
    if len(dims) > _c.DRA_MAX_RANK:
        raise ShapeError("shape %s: expected at most %d axes" % (tuple(dims), _c.DRA_MAX_RANK))
    out = _c.dra_shape(rank=len(dims))
    out.dim[:len(dims)] = list(dims)
    return out


def _strings(names: Sequence[str]) -> Any:
    return (ctypes.c_char_p * max(len(names), 1))(*[n.encode() for n in names])


def _differentiate(g: int, made: Declared, recipe: Recipe) -> Dict[str, "_c.dra_value"]:
    xs, ups = recipe.wanted, recipe.upstream
    y = (_c.dra_value * len(ups))(*[made.outputs[n] for n in ups])
    dy = (_c.dra_value * len(ups))(*[
        lib.dra_input(g, b"d." + n.encode(), KINDS[""][0], lib.dra_shape_of(g, made.outputs[n]))
        for n in ups])
    x = (_c.dra_value * len(xs))(*[made.inputs[n] for n in xs])
    dx = (_c.dra_value * len(xs))()
    lib.dra_gradient(g, len(y), y, dy, len(x), x, dx)
    return {"grad." + n: d for n, d in zip(xs, dx)}


class Program:
    """A recipe, compiled for a device."""

    def __init__(self, recipe: Recipe, device: Handle) -> None:
        self.device = device
        graph = Handle(make(lib.dra_graph_create), lib.dra_graph_destroy)
        g = graph.at
        made = recipe.declare(g)
        named = dict(made.outputs) if recipe.outputs else {}
        self.outputs = list(named)
        if recipe.wanted and not lib.dra_graph_error(g).contents.code:
            named.update(_differentiate(g, made, recipe))
        self._direct = {n: "to." + n for n in named if n not in self.outputs}
        for name, value in named.items():
            if name in self._direct:  # gradients are written where they are wanted
                to = lib.dra_state(g, self._direct[name].encode(), KINDS[""][0],
                                   lib.dra_shape_of(g, value))
                lib.dra_donate(g, name.encode(), value, to)
            else:
                lib.dra_output(g, name.encode(), value)
        error = lib.dra_graph_error(g).contents
        if error.code:
            raise fail(error, error.code)
        self._program = Handle(make(lib.dra_compile, g, device.at), lib.dra_program_destroy, device)
        self.results = list(named)
        self._slots = {n: lib.dra_slot_find(self._program.at, n.encode())
                       for n in [*made.inputs, *("d." + n for n in recipe.upstream),
                                 *self._direct.values()]}
        self._spare: List["Buffers"] = []
        self._lock = threading.Lock()
        #: Whether a run can stop between outputs and gradients; None: nobody has tried yet.
        self.halts: Optional[bool] = None if recipe.outputs and recipe.wanted else False

    def take(self) -> "Buffers":
        """Buffers of nobody else, until they are given back."""
        with self._lock:
            if self._spare:
                return self._spare.pop()
        return Buffers(self)

    def give(self, buffers: "Buffers") -> None:
        buffers.release()
        with self._lock:
            self._spare.append(buffers)

    def run(self, inputs: Places, outputs: Places, stream: Optional[int] = None) -> None:
        """All of it: reads inputs and writes outputs where they are. Work of a GPU comes after what
        is in `stream`, and before what comes into it later."""
        buffers = self.take()
        try:
            self._order(stream, False)
            buffers.bind({**inputs, **self.direct(outputs)})
            call(lib.dra_run, buffers.at)
            buffers.copy_out(outputs)
            self._order(stream, True)
        finally:
            self.give(buffers)

    def begin(self, inputs: Places, outputs: Places) -> Optional["Kept"]:
        """The first part: outputs alone. None: the program does not fall into two parts here."""
        if self.halts is False:
            return None
        buffers = self.take()
        try:
            buffers.bind(inputs)
            call(lib.dra_run_until, buffers.at, len(self.outputs), _strings(self.outputs))
            buffers.copy_out(outputs)
        except (BindError, DeviceError):
            if self.halts:
                raise
            self.halts = False
            return None
        self.halts = True
        return Kept(self, buffers)

    def direct(self, outputs: Places) -> Dict[str, Place]:
        """Those of these places that the run itself writes to."""
        return {self._direct[n]: at for n, at in outputs.items() if n in self._direct}

    def _order(self, stream: Optional[int], back: bool) -> None:
        if stream is not None:
            call(lib.dra_device_order, self.device.at, stream or None, back)


class Buffers:
    """One running instance of a program, and what is bound to it for a while."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._handle = Handle(make(lib.dra_buffers_create, program._program.at),
                              lib.dra_buffers_destroy, program._program)
        self._bound: List[Handle] = []

    @property
    def at(self) -> int:
        return self._handle.at

    def _wrap(self, place: Place) -> Handle:
        device = self._program.device
        return Handle(make(lib.dra_array_wrap, device.at, *place), lib.dra_array_destroy, device)

    def bind(self, inputs: Places) -> None:
        for name, place in inputs.items():
            slot = self._program._slots.get(name, -1)
            if slot < 0:
                continue
            array = self._wrap(place)
            self._bound.append(array)
            call(lib.dra_bind_slot, self.at, slot, lib.dra_array_whole(array.at))

    def copy_out(self, outputs: Places) -> None:
        for name, place in outputs.items():
            if not place[1] or name in self._program._direct:
                continue
            to = self._wrap(place)
            call(lib.dra_array_copy, lib.dra_array_whole(to.at),
                 lib.dra_result(self.at, name.encode()))

    def release(self) -> None:
        self._bound.clear()


class Kept:
    """A run whose first part is done. Its buffers go back when it has ended, or when nobody holds it
    any more."""

    def __init__(self, program: Program, buffers: Buffers) -> None:
        self._program, self._buffers = program, buffers
        self._return = weakref.finalize(self, program.give, buffers)
        self._return.atexit = False

    def finish(self, upstream: Places, outputs: Places) -> bool:
        """The second part. False: it has been done before, and what it reads is gone."""
        if not self._return.alive:
            return False
        self._buffers.bind({**upstream, **self._program.direct(outputs)})
        call(lib.dra_run_rest, self._buffers.at)
        self._buffers.copy_out(outputs)
        self._return()
        return True


# ---- those that were compiled --------------------------------------------------------------------

_programs: "OrderedDict[Any, Program]" = OrderedDict()
_programs_lock = threading.Lock()
PROGRAMS_MOST = 64


def program(recipe: Recipe, device: Handle) -> Program:
    """The program of a recipe; those used last are kept."""
    key = (recipe.key, recipe.upstream, recipe.wanted, recipe.outputs, device.at, os.getpid())
    with _programs_lock:
        found = _programs.pop(key, None) or Program(recipe, device)
        _programs[key] = found
        while len(_programs) > PROGRAMS_MOST:
            _programs.popitem(last=False)
    return found


def places(arrays: Mapping[str, Any]) -> Dict[str, Place]:
    """Of NumPy's arrays, or those of dra.arrays."""
    return {n: (a.ctypes.data, a.nbytes) if isinstance(a, np.ndarray) else a.place
            for n, a in arrays.items()}
