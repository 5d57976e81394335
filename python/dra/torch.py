"""Memories and attention for PyTorch, with gradients; on the CPU, in float32.

    y, S = dra.torch.delta(q, k, v, b)
    mixer = dra.torch.Mixer(512, memory="delta", heads=8)
    y, state = mixer(x)

Each is an operator of torch.library (torch.ops.dra.delta) with a fake kernel and a backward
operator, so that torch.compile sees one node. A state is an input and an output, never kept.
`Trainable` is a whole model of dra: its parameters are PyTorch's and the same memory.
"""
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import functions
from ._library import REAL, lib, view
from .errors import DTypeError, DeviceError, InvalidValue, ShapeError
from .functions import Form
from .model import Model

REAL_TORCH = torch.float32 if REAL.itemsize == 4 else torch.float64
DTYPES = {"": REAL_TORCH, "i": torch.int32, "b": torch.bool}


# ---- operators -----------------------------------------------------------------------------------

def _check(form: Form, name: str, x: Tensor, kind: str) -> Tensor:
    if x.device.type != "cpu":
        raise DeviceError("dra::%s: %s is on %s, expected the CPU" % (form.name, name, x.device))
    if x.dtype != DTYPES[kind]:
        raise DTypeError("dra::%s: %s: expected %s, found %s" %
                         (form.name, name, DTYPES[kind], x.dtype))
    return x.detach().contiguous()


def _place(x: Tensor) -> Tuple[int, int]:
    return x.data_ptr(), x.numel() * x.element_size()


def _split(form: Form, args: Sequence[Any]) -> Tuple[Dict[str, Tensor], Dict[str, float]]:
    names = form.names()
    given = {n: x for n, x in zip(names, args) if x is not None}
    return given, dict(zip(form.options, args[len(names):]))


def _shapes(given: Dict[str, Tensor]) -> Dict[str, Tuple[int, ...]]:
    return {n: tuple(x.shape) for n, x in given.items()}


def _results(form: Form, given: Dict[str, Tensor], options: Dict[str, float]) -> List[Tensor]:
    """Tensors for the outputs; one that there is not is empty."""
    shapes = list(form.shapes(_shapes(given), options))
    shapes += [(0,)] * (len(form.outputs) - len(shapes))
    first = next(iter(given.values()))
    return [first.new_empty(s, dtype=REAL_TORCH) for s in shapes]


def _forward(form: Form, *args: Any) -> Any:
    given, options = _split(form, args)
    given = {n: _check(form, n, x, form.kind(n)) for n, x in given.items()}
    program = functions.program(form, _shapes(given), (), options, torch.get_num_threads())
    out = _results(form, given, options)
    program.run({n: _place(x) for n, x in given.items()},
                {n: _place(x) for n, x in zip(form.results(), out) if n in program.results})
    return tuple(out) if len(out) > 1 else out[0]


def _backward(form: Form, *args: Any) -> Any:
    """The gradients of all inputs of reals; of one that is missing an empty tensor."""
    smooth = form.smooth()
    given, options = _split(form, args[len(smooth):])
    given = {n: _check(form, n, x, form.kind(n)) for n, x in given.items()}
    dy = {n: _check(form, "gradient of " + n, x, "")
          for n, x in zip(smooth, args) if x is not None}
    program = functions.program(form, _shapes(given), tuple(dy), options, torch.get_num_threads())
    out = _gradients(form, given)
    inputs = {n: _place(x) for n, x in given.items()}
    inputs.update({"d." + n: _place(x) for n, x in dy.items()})
    program.run(inputs, {n: _place(x) for n, x in out.items() if n in given})
    return tuple(out.values())


def _gradients(form: Form, given: Dict[str, Tensor]) -> Dict[str, Tensor]:
    first = next(iter(given.values()))
    return {n: torch.empty_like(given[n], memory_format=torch.contiguous_format) if n in given
            else first.new_empty((0,), dtype=REAL_TORCH)
            for n in form.names() if form.kind(n) == ""}


def _schema(form: Form, before: Sequence[str], results: int) -> str:
    inputs = ["Tensor%s %s" % ("?" if "?" in i or ":" in i else "", n)
              for i, n in zip(form.inputs, form.names())]
    options = ["float %s" % o for o in form.options]
    back = ", ".join(["Tensor"] * results)
    return "(%s) -> %s" % (", ".join([*before, *inputs, *options]),
                           "(%s)" % back if results > 1 else back)


def _register(form: Form) -> Callable[..., Any]:
    name, back = "dra::" + form.name, "dra::%s_backward" % form.name
    reals = [n for n in form.names() if form.kind(n) == ""]
    upstream = ["Tensor? d_" + n for n in form.smooth()]
    torch.library.define(name, _schema(form, (), len(form.outputs)))
    torch.library.define(back, _schema(form, upstream, len(reals)))
    for op, function in ((name, _forward), (back, _backward)):
        torch.library.impl(op, "cpu")(lambda *args, f=function: f(form, *args))

    def fake(*args: Any) -> Any:
        out = _results(form, *_split(form, args))
        return tuple(out) if len(out) > 1 else out[0]

    def fake_backward(*args: Any) -> Any:
        return tuple(_gradients(form, _split(form, args[len(upstream):])[0]).values())

    torch.library.register_fake(name)(fake)
    torch.library.register_fake(back)(fake_backward)
    backward = getattr(torch.ops.dra, form.name + "_backward")

    def setup_context(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        n = len(form.inputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:n])
        ctx.options = tuple(inputs[n:])

    def gradient(ctx: Any, *dy: Any) -> Any:
        given = dict(zip(form.results(), dy))
        dys = [given[n] for n in form.smooth()]
        saved = ctx.saved_tensors
        if all(d is None for d in dys):
            return (None,) * (len(saved) + len(ctx.options))
        found = dict(zip(reals, backward(*dys, *saved, *ctx.options)))
        out = [found.get(n) if x is not None else None for n, x in zip(form.names(), saved)]
        return tuple(out) + (None,) * len(ctx.options)

    torch.library.register_autograd(name, gradient, setup_context=setup_context)
    return getattr(torch.ops.dra, form.name)


OPERATORS = {name: _register(f.form) for name, f in functions.ALL.items()}


def _call(name: str, given: Dict[str, Any]) -> Any:
    form = functions.ALL[name].form
    options = [float(given.get(o, usual)) for o, usual in form.options.items()]
    return OPERATORS[name](*[given.get(n) for n in form.names()], *options)


def delta(q: Tensor, k: Tensor, v: Tensor, b: Optional[Tensor] = None, l: Optional[Tensor] = None,
          S: Optional[Tensor] = None, recall: Optional[Tensor] = None,
          replace: Optional[Tensor] = None,
          mark: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    """The delta rule: q, k (B, T, H, F), v (B, T, H, E), b (B, T, H), l ln of decays, S the state
    (B, H, F, E); recall and replace (B, T, H, F) stand in for b. Returns y and the new state."""
    return _call("delta", locals())


def moment(q: Tensor, k: Tensor, v: Tensor, l: Optional[Tensor] = None, S: Optional[Tensor] = None,
           z: Optional[Tensor] = None, u: Optional[Tensor] = None, mark: Optional[Tensor] = None,
           normalise: bool = False, eps: float = 0, least: float = 0) -> Tuple[Tensor, ...]:
    """Sums of outer products that fade: linear attention, retention, RWKV 5 and 6. Returns y, S
    and, with normalise, z."""
    out = _call("moment", locals())
    return tuple(out) if normalise else tuple(out[:2])


def wkv(k: Tensor, v: Tensor, w: Tensor, u: Tensor, A: Optional[Tensor] = None,
        B: Optional[Tensor] = None, p: Optional[Tensor] = None,
        mark: Optional[Tensor] = None) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The wkv of RWKV-4: k, v (B, T, C), w < 0 and u (C), the state A, B, p (B, C)."""
    return _call("wkv", locals())


def ema(x: Tensor, beta: Tensor, w: Optional[Tensor] = None, start: Optional[Tensor] = None,
        mark: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    """Running means on M timescales: x (B, T, N), beta (M, N), w (M, N)."""
    return _call("ema", locals())


def gru(x: Tensor, w: Tensor, b: Optional[Tensor] = None, beta: Optional[Tensor] = None,
        start: Optional[Tensor] = None, mark: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    """GRU cells: x (B, T, H, 3D), w (3D, D) or (H, 3D, D)."""
    return _call("gru", locals())


def lstm(x: Tensor, w: Tensor, b: Optional[Tensor] = None, beta: Optional[Tensor] = None,
         start_h: Optional[Tensor] = None, start_c: Optional[Tensor] = None,
         mark: Optional[Tensor] = None) -> Tuple[Tensor, Tensor, Tensor]:
    """LSTM cells, gates in the order i, f, n, o: x (B, T, H, 4D), w (4D, D) or (H, 4D, D)."""
    return _call("lstm", locals())


def slots(q: Tensor, k: Tensor, v: Tensor, l: Tensor, u: Tensor, P: Optional[Tensor] = None,
          Q: Optional[Tensor] = None, mark: Optional[Tensor] = None,
          read: str = "own") -> Tuple[Tensor, Tensor, Tensor]:
    """S slots a head and a softmax over them, of one's "own", of "all" heads, or "pooled"."""
    if read not in ("own", "all", "pooled"):
        raise InvalidValue("slots: read is 'own', 'all' or 'pooled', found %r" % read)
    return _call("slots", dict(locals(), read=("own", "all", "pooled").index(read)))


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
        hi = torch.arange(J - T + 1, J + 1, dtype=torch.int32).clamp(min=0).repeat(B, 1)
        lo = (hi - window).clamp(min=0) if window else torch.zeros_like(hi)
    return _call("attend", dict(locals()))


# ---- modules -------------------------------------------------------------------------------------


class Mixer(nn.Module):
    """A memory in the place of attention: x (B, T, dim) to y (B, T, dim), and the state.

    `memory` is "delta" (unit keys, b = sigmoid(W_b x)) or "moment" (linear attention with
    phi = elu + 1, normalised). With `decay`, what is kept fades by sigmoid(W_decay x + b_decay)
    to the power of 1/16.
    The state is returned and never kept: reading a text in parts, each from the state of the one
    before, gives what reading it whole does.
    """

    def __init__(self, dim: int, memory: str = "delta", heads: int = 8,
                 decay: bool = False) -> None:
        super().__init__()
        if memory not in ("delta", "moment"):
            raise InvalidValue("Mixer: memory is 'delta' or 'moment', found %r" % memory)
        if dim % heads:
            raise ShapeError("Mixer: %d heads do not divide dim %d" % (heads, dim))
        self.memory, self.heads, self.decay = memory, heads, decay
        for name in ("W_q", "W_k", "W_v", "W_o"):
            self.register_parameter(name, nn.Parameter(torch.randn(dim, dim) * dim**-0.5))
        if memory == "delta":
            self.W_b = nn.Parameter(torch.randn(heads, dim) * dim**-0.5)
        if decay:
            self.W_decay = nn.Parameter(torch.zeros(heads, dim))
            self.b_decay = nn.Parameter(torch.linspace(2, 6, heads))

    def forward(self, x: Tensor, state: Optional[Tuple[Tensor, ...]] = None
                ) -> Tuple[Tensor, Tuple[Tensor, ...]]:
        B, T, C = x.shape
        q, k, v = (F.linear(x, w).view(B, T, self.heads, -1)
                   for w in (self.W_q, self.W_k, self.W_v))
        l = F.logsigmoid(F.linear(x, self.W_decay, self.b_decay)) / 16 if self.decay else None
        if self.memory == "delta":
            q, k = (a * torch.rsqrt(a.square().sum(-1, keepdim=True) + 1e-12) for a in (q, k))
            (S,) = state or (None,)
            y, *last = delta(q, k, v, torch.sigmoid(F.linear(x, self.W_b)), l, S)
        else:
            S, z = state or (None, None)
            y, *last = moment(F.elu(q) + 1, F.elu(k) + 1, v, l, S, z, normalise=True, eps=1e-6)
        return F.linear(y.reshape(B, T, C), self.W_o), tuple(last)


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

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self._names: List[str] = []
        for i, name in enumerate(model.parameters):
            at = lib.dra_weights_edit(model._weights.at, i)
            if not at:
                raise MemoryError("Trainable: no memory for " + name)
            array = view(at, model.parameters._find(name)[1], REAL, model._weights, True)
            self.register_parameter(name.replace(".", "/"), nn.Parameter(torch.from_numpy(array)))
        model._forget()
        model._changes = self._count_changes

    def _count_changes(self) -> int:
        """How often an optimizer, or anybody, has written parameters in place."""
        return sum(p._version for p in self.parameters())

    def forward(self, ids: Any, targets: Any = None) -> Tensor:
        return _Loss.apply(self, ids, targets, *self.parameters())
