"""Memories, attention, layers and models for PyTorch, with gradients; in float32.

    y, S = dra.torch.delta(q, k, v, b)
    mixer = dra.torch.Mixer(512, memory="delta", heads=8)
    y, state = mixer(x)
    logits = dra.torch.Model(dra.load("my-model"))(ids)

Each is an operator of torch.library (torch.ops.dra.delta) with a fake kernel and a backward
operator, so that torch.compile sees one node. A state is an input and an output, never kept.
Parameters of a model of dra are PyTorch's and the same memory. Tensors are on the CPU, or on a GPU
where dra's plugin is; work on it is in turn with torch's current stream.
"""
import weakref
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from . import modules
from ._library import REAL, lib, view
from ._torch_ops import REAL_TORCH, call, call_module, register
from .errors import DTypeError, InvalidValue, ShapeError
from .model import Model as LoadedModel

# ---- functions -----------------------------------------------------------------------------------

def delta(q: Tensor, k: Tensor, v: Tensor, b: Optional[Tensor] = None, l: Optional[Tensor] = None,
          S: Optional[Tensor] = None, recall: Optional[Tensor] = None,
          replace: Optional[Tensor] = None,
          mark: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    """The delta rule: q, k (B, T, H, F), v (B, T, H, E), b (B, T, H), l ln of decays, S the state
    (B, H, F, E); recall and replace (B, T, H, F) stand in for b. Returns y and the new state."""
    return call("delta", locals())


def moment(q: Tensor, k: Tensor, v: Tensor, l: Optional[Tensor] = None, S: Optional[Tensor] = None,
           z: Optional[Tensor] = None, u: Optional[Tensor] = None, mark: Optional[Tensor] = None,
           normalise: bool = False, eps: float = 0, least: float = 0) -> Tuple[Tensor, ...]:
    """Sums of outer products that fade: linear attention, retention, RWKV 5 and 6. Returns y, S
    and, with normalise, z."""
    out = call("moment", locals())
    return tuple(out) if normalise else tuple(out[:2])


def wkv(k: Tensor, v: Tensor, w: Tensor, u: Tensor, A: Optional[Tensor] = None,
        B: Optional[Tensor] = None, p: Optional[Tensor] = None,
        mark: Optional[Tensor] = None) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The wkv of RWKV-4: k, v (B, T, C), w < 0 and u (C), the state A, B, p (B, C)."""
    return call("wkv", locals())


def ema(x: Tensor, beta: Tensor, w: Optional[Tensor] = None, start: Optional[Tensor] = None,
        mark: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    """Running means on M timescales: x (B, T, N), beta (M, N), w (M, N)."""
    return call("ema", locals())


def gru(x: Tensor, w: Tensor, b: Optional[Tensor] = None, beta: Optional[Tensor] = None,
        start: Optional[Tensor] = None, mark: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    """GRU cells: x (B, T, H, 3D), w (3D, D) or (H, 3D, D)."""
    return call("gru", locals())


def lstm(x: Tensor, w: Tensor, b: Optional[Tensor] = None, beta: Optional[Tensor] = None,
         start_h: Optional[Tensor] = None, start_c: Optional[Tensor] = None,
         mark: Optional[Tensor] = None) -> Tuple[Tensor, Tensor, Tensor]:
    """LSTM cells, gates in the order i, f, n, o: x (B, T, H, 4D), w (4D, D) or (H, 4D, D)."""
    return call("lstm", locals())


def slots(q: Tensor, k: Tensor, v: Tensor, l: Tensor, u: Tensor, P: Optional[Tensor] = None,
          Q: Optional[Tensor] = None, mark: Optional[Tensor] = None,
          read: str = "own") -> Tuple[Tensor, Tensor, Tensor]:
    """S slots a head and a softmax over them, of one's "own", of "all" heads, or "pooled"."""
    if read not in ("own", "all", "pooled"):
        raise InvalidValue("slots: read is 'own', 'all' or 'pooled', found %r" % read)
    return call("slots", dict(locals(), read=("own", "all", "pooled").index(read)))


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, window: int = 0,
           lo: Optional[Tensor] = None, hi: Optional[Tensor] = None,
           mask: Optional[Tensor] = None, bias: Optional[Tensor] = None,
           slopes: Optional[Tensor] = None, sink: Optional[Tensor] = None, scale: float = 0,
           softcap: float = 0) -> Tensor:
    """Softmax attention: q (B, H, T, D), k, v (B, K, J, ...), where K divides H. With `causal`,
    the last query sees all keys, the one before all but the last, ...; `window` leaves each the
    last so many of these. Or lo, hi int32 (B, T): keys lo <= j < hi."""
    (B, _, T, _), J = q.shape, k.shape[2]
    if causal:
        if lo is not None or hi is not None:
            raise InvalidValue("attend: expected causal, or lo and hi, found both")
        hi = torch.arange(J - T + 1, J + 1, dtype=torch.int32, device=q.device)
        hi = hi.clamp(min=0).repeat(B, 1)
        lo = (hi - window).clamp(min=0) if window else torch.zeros_like(hi)
    return call("attend", dict(locals()))


# ---- modules -------------------------------------------------------------------------------------


class State(NamedTuple):
    """What a module has read: a value that the caller keeps."""
    tensors: Tuple[Tensor, ...]  #: by `state_names` of the module; (B, ...), of items (B, n, ...)
    tokens: int

    def detach(self) -> "State":
        """The same, through which no gradient goes back."""
        return State(tuple(t.detach() for t in self.tensors), self.tokens)


def _adopt(into: nn.Module, name: str, tensor: nn.Parameter) -> None:
    """Registers a parameter by its dotted name, so that state_dict() has that name."""
    *path, last = name.split(".")
    for part in path:
        if part not in into._modules:
            into.add_module(part, nn.Module())
        into = into._modules[part]
    into.register_parameter(last, tensor)


class _OfLibrary(nn.Module):
    """A module of the library: what it reads and its states to outputs and states."""

    def __init__(self, form: modules.Module, parameters: Iterable[Tuple[str, nn.Parameter]]) -> None:
        super().__init__()
        self._form, self._names = form, []
        register(form)
        for name, parameter in parameters:
            _adopt(self, name, parameter)
            self._names.append(name)

    @property
    def state_names(self) -> List[str]:
        """What the tensors of a state are."""
        return [s.name for s in self._form.states]

    def state(self, batch: int = 1) -> State:
        """That of sequences of which nothing was read."""
        first = next(iter(self.parameters()))
        return State(tuple(
            torch.full(self._form.state_shape(s, batch, 0), s.first, dtype=first.dtype,
                       device=first.device) for s in self._form.states), 0)

    def _run(self, x: Tensor, state: Optional[State]) -> Tuple[List[Tensor], State]:
        form = self._form
        form.check(x.shape)
        if state is None and form.has_items:
            state = self.state(x.shape[0])
        states, rows = self._room(x, state) if state is not None else ([], 0)
        own = dict(self.named_parameters())
        out, after = call_module(form, x, [own[n] for n in self._names], states,
                                 state.tokens if state else 0, rows)
        return out, State(tuple(after), (state.tokens if state else 0) + x.shape[1])

    def _room(self, x: Tensor, state: State) -> Tuple[List[Tensor], int]:
        """The tensors of a state, those of items with rows for the tokens of x."""
        specs, out, rows = self._form.states, [], 0
        if len(state.tensors) != len(specs):
            raise ShapeError("%s: expected a state of %d tensors, found %d" % (
                self._form.what, len(specs), len(state.tensors)))
        for s, t in zip(specs, state.tensors):
            n = t.shape[1] if s.items and t.dim() > 1 else 0
            rows = n if s.items else rows
            expected = self._form.state_shape(s, x.shape[0], rows)
            if tuple(t.shape) != expected:
                raise ShapeError("%s: state %s: expected %s, found %s" % (
                    self._form.what, s.name, expected, tuple(t.shape)))
            more = (t.shape[0], x.shape[1], *t.shape[2:])
            out.append(torch.cat([t, t.new_zeros(more)], 1) if s.items else t)
        return out, rows

    def __getstate__(self) -> Any:
        raise TypeError("a module of dra cannot be pickled or copied: save its state_dict()")


class Mixer(_OfLibrary):
    """A memory in the place of attention: x (B, T, dim) to y (B, T, dim), and the state.

    `memory` is one of dra's: "delta", "moment", "ema", "ssm", "gru", "lstm", "wkv", "slots",
    "shortconv", or "append", which is attention. Options are the keys of `mixer` in a config
    (docs/models.md): retrieval, window, decay, gate, slots, bias, shift, qk_norm, kv_heads, ...
    Parameters have the names they have in a model, and are drawn from `seed`.
    The state is returned and never kept: reading a text in parts, each from the state of the one
    before, gives what reading it whole does.
    """

    def __init__(self, dim: int, memory: str = "delta", heads: int = 8, *, seed: int = 0,
                 **options: Any) -> None:
        form = modules.mixer(dim, dict(options, memory=memory, heads=heads))
        super().__init__(form, _drawn(form, seed, ""))

    def forward(self, x: Tensor, state: Optional[State] = None) -> Tuple[Tensor, State]:
        (y,), after = self._run(x, state)
        return y, after


def _drawn(form: modules.Module, seed: int, prefix: str) -> List[Tuple[str, nn.Parameter]]:
    """First values of the parameters of a form, by their names without a prefix."""
    out = []
    for i in form.used:
        s = form.parameters[i]
        out.append((s.name[len(prefix):],
                    nn.Parameter(torch.from_numpy(form.first(i, seed)), s.trained)))
    return out


_shared: "weakref.WeakKeyDictionary[LoadedModel, Dict[str, nn.Parameter]]" = \
    weakref.WeakKeyDictionary()


def _share(model: LoadedModel) -> Dict[str, nn.Parameter]:
    """The parameters of a model, which are its own memory; the same ones for all who ask."""
    if model not in _shared:
        own = _shared[model] = {}
        for i, name in enumerate(model.parameters):
            at = lib.dra_weights_edit(model._weights.at, i)
            if not at:
                raise MemoryError("torch: no memory for " + name)
            trained = not lib.dra_specs_at(lib.dra_model_params(model._model.at), i).contents.frozen
            array = view(at, model.parameters._find(name)[1], REAL, model._weights, True)
            own[name] = nn.Parameter(torch.from_numpy(array), trained)
        model._forget()
        model._edited = True
        # How often an optimizer, or anybody, has written them in place.
        model._changes = lambda: sum(p._version for p in own.values())
    return _shared[model]


class Layer(_OfLibrary):
    """A layer, with its norms, residuals and feed-forward: x (B, T, C) to (B, T, C), and the state.

    `source` is a model that was loaded, whose layer `index` it is, with the same parameters in the
    same memory; or a config, as an object, of which it is the first layer with parameters drawn
    from `seed`. Refused are layers that do not stand alone in their model.
    """

    def __init__(self, source: Any, index: int = 0, *, seed: int = 0) -> None:
        if isinstance(source, LoadedModel):
            form = modules.layer(modules.layer_config(source.config, index))
            own, prefix = _share(source), "layers.%d." % index
            names = [form.parameters[i].name[len("layers.0."):] for i in form.used]
            if sorted(prefix + n for n in names) != sorted(n for n in own if n.startswith(prefix)):
                raise InvalidValue("Layer: layer %d does not stand alone in its model" % index)
            super().__init__(form, [(n, own[prefix + n]) for n in names])
        else:
            config = dict({"depth": 1}, **source)
            form = modules.layer(modules.layer_config(config, index))
            super().__init__(form, _drawn(form, seed, "layers.0."))

    def forward(self, x: Tensor, state: Optional[State] = None) -> Tuple[Tensor, State]:
        (y,), after = self._run(x, state)
        return y, after


class Model(_OfLibrary):
    """A whole model: ids int32 (B, T) to logits (B, T, V), or with a state to (logits, state).

    Its parameters are those of the model that was loaded, in the same memory, so that a step of any
    optimizer changes that model; gradients of a loss are those of `dra grad`. Nothing is dropped
    out. With `hidden`, it gives what the head reads (B, T, C) in place of logits.
    """

    def __init__(self, model: LoadedModel, hidden: bool = False) -> None:
        own = _share(model)
        super().__init__(modules.whole(model, "hidden" if hidden else "logits"), own.items())
        self.model = model

    def forward(self, ids: Tensor, state: Optional[State] = None) -> Any:
        if ids.dtype != torch.int32:
            raise DTypeError("Model: ids: expected torch.int32, found %s" % ids.dtype)
        read = state.tokens if state is not None else 0
        room = self.model._positions
        if room and read + ids.shape[-1] > room:
            raise InvalidValue("Model: %d tokens after %d, the model has positions for %d" %
                               (ids.shape[-1], read, room))
        (out,), after = self._run(ids, state)
        return out if state is None else (out, after)


class _Loss(torch.autograd.Function):
    """The loss of a model of dra; its gradients are there with it, as `dra grad` has them."""

    @staticmethod
    def forward(ctx: Any, model: "Trainable", ids: Any, targets: Any,
                *parameters: Tensor) -> Tensor:
        gradients = model.model.grad(ids, targets)
        ctx.gradients = [torch.from_numpy(g) for g in gradients.values()]
        return torch.tensor(gradients.loss, dtype=REAL_TORCH)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return (None, None, None, *[upstream[0] * g for g in ctx.gradients])


class Trainable(nn.Module):
    """A model of dra as a module: forward(ids) is its mean loss on ids int32 (T) or (B, T), each
    the target of the one before; backward gives the gradients of `dra grad`. Parameters are the
    model's own memory, so that a step of any optimizer changes the model."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__()
        self.model, self._own = model, _share(model)
        for name, parameter in self._own.items():
            _adopt(self, name, parameter)

    def forward(self, ids: Any, targets: Any = None) -> Tensor:
        return _Loss.apply(self, ids, targets, *self._own.values())
