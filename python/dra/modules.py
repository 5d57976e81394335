"""Modules of the library as functions of arrays: mixers, layers, models.

What they read, their parameters and their states come in; outputs and the new states go out, and
nothing is kept. `dra.torch` makes modules of PyTorch of them.
"""
import ctypes
import itertools
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Sequence

import numpy as np

from . import _c
from ._library import REAL, Handle, lib, make, parse_config
from .errors import InvalidValue, OutOfRange, ShapeError
from .programs import Declared, Recipe, Shape

if TYPE_CHECKING:
    from .model import Model


class Spec(NamedTuple):
    """A parameter, or a state of one sequence."""
    name: str
    shape: Shape
    trained: bool
    items: bool  #: a state with a row for each token; else it has a fixed size
    limit: int  #: of rows that are kept; 0: all
    first: float  #: the number that a state starts with


def _specs(at: int) -> List[Spec]:
    out = []
    for i in range(lib.dra_specs_count(at)):
        s = lib.dra_specs_at(at, i).contents
        out.append(Spec(s.name.decode(), tuple(s.shape.dim[:s.shape.rank]), not s.frozen, s.items,
                        s.limit, s.number))
    return out


_numbers = itertools.count()


class Module:
    """A dra_module: `read` is its input, of this width, or of ids (0); `outputs` are those that are
    wanted, with their widths."""

    def __init__(self, module: "_c.dra_module", what: str, read: str, width: int,
                 outputs: Mapping[str, int], *holds: Any) -> None:
        for name, there in (("segments", module.segment > 0), ("a context", module.context),
                            ("learned vectors before the text", module.start > 0)):
            if there:
                raise InvalidValue("%s: it has %s: m.forward() reads those" % (what, name))
        self._module, self._holds, self.number = module, holds, next(_numbers)
        self.what, self.read, self.width, self.outputs = what, read, width, dict(outputs)
        self.parameters = _specs(module.params)
        #: Numbers of the parameters that it uses, where it is a part of a model.
        self.used = list(range(len(self.parameters)))
        self.states = _specs(module.state)
        self.whole: bool = module.whole
        if self.whole:
            self.states = []
        self.has_items = any(s.items for s in self.states)

    def first(self, i: int, seed: int) -> np.ndarray:
        """First values of parameter i."""
        out = np.empty(self.parameters[i].shape, REAL)
        lib.dra_specs_fill(self._module.params, i, seed, out.ctypes.data)
        return out

    # -- tokens

    def tokens(self, B: int, T: int, read: int, rows: int) -> Dict[str, np.ndarray]:
        """What the library wants to know of T tokens after `read` ones, of whose items the last
        `rows` are there, by the names of its inputs."""
        t = np.arange(T, dtype=np.int32)
        out = {"pos": read + t, "prev": t.copy(), "last": np.array([T], np.int32)}
        if self.whole:
            out["prev"][:1] = -1
            out.update(lo=np.zeros_like(t), hi=np.full_like(t, T), last=np.array([-1], np.int32))
        for limit in {s.limit for s in self.states if s.items}:
            end = rows + t + 1
            lo = np.maximum(end - limit, 0) if limit else np.zeros_like(t)
            for name, x in (("at", end - 1), ("lo", lo), ("hi", end),
                            ("base", np.array([read - rows], np.int32))):
                out["%s.%d" % (name, limit)] = x
        return {"tokens." + n: np.tile(x.astype(np.int32), (B, 1)) for n, x in out.items()}

    # -- graphs

    def recipe(self, shape: Shape, rows: int, fresh: bool, upstream: Sequence[str] = (),
               wanted: Sequence[str] = (), outputs: bool = True) -> Recipe:
        """It for an input of this shape (B, T, ...), after `rows` items."""
        def declare(g: int) -> Declared:
            return self._declare(g, shape, rows, fresh)

        key = ("module", self.number, tuple(shape), rows, fresh)
        return Recipe(key, declare, tuple(upstream), tuple(wanted), outputs)

    def _declare(self, g: int, shape: Shape, rows: int, fresh: bool) -> Declared:
        B, T = shape[:2]
        P, S = len(self.parameters), lib.dra_specs_count(self._module.state)
        param, state, after = (_c.dra_value * (P + 1))(), (_c.dra_value * (S + 1))(), \
            (_c.dra_value * (S + 1))()
        room = (ctypes.c_int64 * (S + 1))(*[rows + T] * S)
        call_shape = _c.dra_module_shape(B=B, T=T, fresh=fresh or self.whole)
        if not call_shape.fresh:
            call_shape.rows = ctypes.addressof(room)
        lib.dra_module_graph(g, ctypes.byref(self._module), ctypes.byref(call_shape), param, state,
                             after)
        inputs = {self.parameters[i].name: param[i] for i in self.used}
        for i, s in enumerate(self.states):
            if not fresh:
                inputs["state." + s.name] = state[i]
        for name in (self.read, *self.tokens(B, T, 0, 0)):
            value = lib.dra_find_input(g, name.encode())
            if value.id:
                inputs[name] = value
        found = {n: lib.dra_find_output(g, n.encode()) for n in self.outputs}
        found = {"out." + n: lib.dra_copy(g, v) for n, v in found.items()}
        for i, s in enumerate(self.states):
            found["next." + s.name] = lib.dra_copy(g, after[i])
        return Declared(inputs, found)

    def shapes(self, shape: Shape, rows: int) -> List[Shape]:
        """Of outputs and of states after a call, for an input of this shape."""
        B, T = shape[:2]
        return [*((B, T, C) for C in self.outputs.values()),
                *(self.state_shape(s, B, rows + T) for s in self.states)]

    def results(self) -> List[str]:
        """Names of what a recipe puts out, in the same order."""
        return [*("out." + n for n in self.outputs), *("next." + s.name for s in self.states)]

    @staticmethod
    def state_shape(s: Spec, B: int, rows: int) -> Shape:
        return (B, rows, *s.shape) if s.items else (B, *s.shape)

    def check(self, shape: Shape) -> None:
        """Of what is read."""
        if len(shape) != (3 if self.width else 2) or (self.width and shape[2] != self.width):
            raise ShapeError("%s: %s: expected %s, found %s" % (
                self.what, self.read, "(B, T, %d)" % self.width if self.width else "(B, T)",
                tuple(shape)))


# ---- what there is -------------------------------------------------------------------------------

def _model(config: Mapping[str, Any]) -> Handle:
    c = parse_config(dict({"model_type": "dra", "vocab": 2, "depth": 1}, **config))
    return Handle(make(lib.dra_model_create, c.at), lib.dra_model_destroy)


def mixer(dim: int, options: Mapping[str, Any]) -> Module:
    """A mixer alone: options are the keys of `mixer` in a config."""
    model = _model({"dim": dim, "mixer": dict(options)})
    module = lib.dra_mixer_module(lib.dra_model_mixer(model.at, 0)).contents
    return Module(module, "Mixer", "x", dim, {"y": dim}, model)


def whole(model: "Model", output: str) -> Module:
    """A model: ids to "logits", or to the "hidden" states that its head reads."""
    model._head_check()
    if set(model._reads) != {"ids"}:
        raise InvalidValue("Model: it reads %s: expected a model of tokens alone" %
                           ", ".join(sorted(model._reads)))
    view = _c.dra_view(model=model._open().at, **{output: True})
    module = lib.dra_view_module(ctypes.byref(view))
    width = model.vocab if output == "logits" else model._dim
    return Module(module, "Model", "ids", 0, {output: width}, view, model._model)


#: Keys of a config by which layers hand something on to each other, or are not one stream.
_SHARED = {"unet", "reinject", "reinject_gate", "tied_layers", "order", "sandwich", "layer_scale",
           "memory_tokens", "xl", "condition", "source", "cross", "rescale_every", "stacks",
           "position", "shifts", "drops", "output_softcap", "norm_alpha"}
_SHARED_IN_MIXERS = {"value_residual", "residual_scores"}
#: Keys of what comes before and after the layers.
_AROUND = {"positions", "embed_norm", "embed_norm_kind", "embed_dim", "embed_unit", "embed_scale",
           "logit_scale", "tied", "head", "pattern", "final_eps", "embed_dropout", "hugging_face"}


def layer_config(config: Mapping[str, Any], i: int) -> Dict[str, Any]:
    """The config of a model of layer i alone; refused where it needs other layers."""
    depth = config["depth"]
    if not 0 <= i < depth:
        raise OutOfRange("Layer: found %d, expected 0 to %d" % (i, depth - 1))
    mixers = config.get("mixer", {})
    mixers = mixers if isinstance(mixers, list) else [mixers]
    own = mixers[config.get("pattern", range(depth))[i] % len(mixers)]
    shared = sorted(_SHARED & set(config)) + sorted(_SHARED_IN_MIXERS & set(own))
    block = config.get("block", {})
    if config.get("layout", "af").count("a") != 1 or "c" in config.get("layout", ""):
        shared.append("layout")
    shared += ["block.streams"] if "streams" in block else []
    shared += ["mixer.blend"] if own.get("blend") in ("schedule", "input") else []
    shared += ["block.norm"] if block.get("norm") == "dual" else []
    shared += ["visible"] if config.get("visible") == "prefix" else []
    if shared:
        raise InvalidValue("Layer: a layer does not stand alone in a model with %s: Model has all "
                           "of them" % ", ".join(shared))
    out = {k: v for k, v in config.items() if k not in _AROUND}
    return dict(out, model_type="dra", vocab=2, depth=1, mixer=own)


def layer(config: Mapping[str, Any]) -> Module:
    """A layer, its sublayers with norms and residuals: the only one of this config."""
    model = _model(config)
    view = _c.dra_view(model=model.at, embedded=True, streams=True)
    module = lib.dra_view_module(ctypes.byref(view))
    dim = lib.dra_model_config_of(model.at).contents.dim
    out = Module(module, "Layer", "x", dim, {"stream.1": dim}, view, model)
    out.used = [i for i, s in enumerate(out.parameters) if s.name.startswith("layers.0.")]
    return out
