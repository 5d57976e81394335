"""The functions and modules of the library as operators of PyTorch (torch.ops.dra).

Each has a fake kernel and a backward operator, so that torch.compile sees one node of each. Where an
input wants a gradient, the forward operator keeps its run, which the backward one goes on with; what
stands for it between the two is a tensor of one byte. Where there is no run to go on with (a second
backward, a GPU), the backward operator computes the forward part again.
"""
import ctypes
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from . import functions
from ._library import REAL, Handle
from .errors import DeviceError, DTypeError
from .functions import Form
from .opening import open_device
from .modules import Module
from .programs import Kept, Place, Recipe, program

REAL_TORCH = torch.float32 if REAL.itemsize == 4 else torch.float64
DTYPES = {"": REAL_TORCH, "i": torch.int32, "b": torch.bool}


# ---- running -------------------------------------------------------------------------------------

def check(what: str, name: str, x: Tensor, kind: str) -> Tensor:
    if x.device.type not in ("cpu", "cuda"):
        raise DeviceError("%s: %s is on %s, expected the CPU or a GPU of NVIDIA" %
                          (what, name, x.device))
    if x.dtype != DTYPES[kind]:
        raise DTypeError("%s: %s: expected %s, found %s" % (what, name, DTYPES[kind], x.dtype))
    return x.detach().contiguous()


def same_device(what: str, given: Mapping[str, Tensor]) -> torch.device:
    devices = {x.device for x in given.values()}
    if len(devices) > 1:
        raise DeviceError("%s: expected tensors of one device, found %s" %
                          (what, ", ".join(sorted(map(str, devices)))))
    return devices.pop()


def _handle(device: torch.device) -> Handle:
    if device.type == "cpu":
        return open_device("cpu", torch.get_num_threads())
    return open_device("cuda:%d" % (device.index or 0), 0)


def _stream(device: torch.device) -> Optional[int]:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None


def _places(tensors: Mapping[str, Tensor]) -> Dict[str, Place]:
    return {n: (x.data_ptr(), x.numel() * x.element_size()) for n, x in tensors.items()}


_runs: "weakref.WeakValueDictionary[int, Kept]" = weakref.WeakValueDictionary()


def _token(kept: Optional[Kept]) -> Tensor:
    """A byte that holds a run as long as anybody has it."""
    memory: Any = (ctypes.c_char * 1)()
    memory._run = kept
    if kept is not None:
        _runs[ctypes.addressof(memory)] = kept
    return torch.from_numpy(np.frombuffer(memory, np.uint8))


class _Lease:
    """Memory of an output, which the next one may have when nobody holds this one any more: PyTorch
    gives memory of the CPU back to the system, and new pages cost as much as a copy."""

    LEAST, MOST = 1 << 20, 1 << 28  # bytes of a piece, and of all that wait
    spare: Dict[int, List[np.ndarray]] = {}
    waiting = 0

    def __init__(self, size: int) -> None:
        waits = _Lease.spare.get(size)
        if waits:
            self.block = waits.pop()
            _Lease.waiting -= size
        else:
            self.block = np.empty(size, np.uint8)

    def __del__(self) -> None:
        size = len(self.block)
        if _Lease.waiting + size <= _Lease.MOST:
            _Lease.waiting += size
            _Lease.spare.setdefault(size, []).append(self.block)


Fresh = Callable[[Sequence[int]], Tensor]  #: makes a tensor of reals


def fresh_like(x: Tensor) -> Fresh:
    """Tensors on the device of x; large ones on the CPU are leased."""
    def make(shape: Sequence[int]) -> Tensor:
        size = int(np.prod(shape, dtype=np.int64)) * REAL.itemsize
        if x.device.type != "cpu" or size < _Lease.LEAST:
            return x.new_empty(tuple(shape), dtype=REAL_TORCH)
        lease = _Lease(size)
        memory: Any = (ctypes.c_char * size).from_address(lease.block.ctypes.data)
        memory._lease = lease
        return torch.from_numpy(np.frombuffer(memory, REAL).reshape(tuple(shape)))
    return make


def fake_like(x: Tensor) -> Fresh:
    return lambda shape: x.new_empty(tuple(shape), dtype=REAL_TORCH)


def zeros(shape: Sequence[int], device: Any) -> Tensor:
    """Of reals. NumPy's need no writing; PyTorch's threads would go on spinning for a while, in the
    way of those of the library."""
    if torch.device(device).type == "cpu":
        return torch.from_numpy(np.zeros(tuple(shape), REAL))
    return torch.zeros(tuple(shape), dtype=REAL_TORCH, device=device)


def fake_token(wanted: Any) -> Tensor:
    return torch.empty(1 if wanted else 0, dtype=torch.uint8)


Making = Callable[..., Recipe]  #: of upstream, wanted and whether outputs are computed


def compute(making: Making, given: Mapping[str, Tensor], out: Mapping[str, Tensor],
            smooth: Sequence[str], wanted: Sequence[str]) -> Tensor:
    """Outputs from inputs; a token of the run if any gradient is wanted."""
    device = next(iter(given.values())).device
    handle, inputs, outputs = _handle(device), _places(given), _places(out)
    kept = None
    if wanted and device.type == "cpu":
        kept = program(making(smooth, wanted, True), handle).begin(inputs, outputs)
    if kept is None:
        program(making((), (), True), handle).run(inputs, outputs, _stream(device))
    else:
        kept.tensors = tuple(given.values())  # which it still reads
    return _token(kept) if wanted else fake_token(wanted)


def compute_gradients(making: Making, run: Tensor, given: Mapping[str, Tensor],
                      dy: Dict[str, Tensor], shapes: Mapping[str, Sequence[int]],
                      smooth: Sequence[str], grads: Mapping[str, Tensor]) -> None:
    """Gradients of inputs from those of outputs of these shapes."""
    places = _places({"grad." + n: x for n, x in grads.items()})
    kept = _runs.get(run.data_ptr()) if run.numel() else None
    if kept is not None:
        all_dy = {n: dy[n] if n in dy else zeros(shapes[n], "cpu") for n in smooth}
        if kept.finish(_places({"d." + n: x for n, x in all_dy.items()}), places):
            return
    device = next(iter(given.values())).device
    ups = [n for n in smooth if n in dy]
    program(making(ups, tuple(grads), False), _handle(device)).run(
        {**_places(given), **_places({"d." + n: dy[n] for n in ups})}, places, _stream(device))


# ---- functions -----------------------------------------------------------------------------------

class _Call:
    """The arguments of an operator: inputs that are there by name, options, wanted gradients."""

    def __init__(self, form: Form, args: Sequence[Any]) -> None:
        names = form.names()
        self.form = form
        self.given: Dict[str, Tensor] = {n: x for n, x in zip(names, args) if x is not None}
        self.options: Dict[str, float] = dict(zip(form.options, args[len(names):]))
        bits = args[len(names) + len(form.options)]
        self.wanted = [n for i, n in enumerate(names) if bits >> i & 1 and n in self.given]
        self.shapes = {n: tuple(x.shape) for n, x in self.given.items()}

    def checked(self) -> Dict[str, Tensor]:
        what = "dra::" + self.form.name
        same_device(what, self.given)
        return {n: check(what, n, x, self.form.kind(n)) for n, x in self.given.items()}

    def making(self, *how: Any) -> Recipe:
        return self.form.recipe(self.shapes, self.options, *how)

    def output_shapes(self) -> Dict[str, Sequence[int]]:
        """Of the outputs that there are."""
        return dict(zip(self.form.results(), self.form.shapes(self.shapes, self.options)))

    @property
    def first(self) -> Tensor:
        return next(iter(self.given.values()))

    def results(self, make: Fresh) -> Dict[str, Tensor]:
        """Tensors for the outputs; one that there is not is empty."""
        shapes = list(self.output_shapes().values())
        shapes += [(0,)] * (len(self.form.outputs) - len(shapes))
        return {n: make(s) for n, s in zip(self.form.results(), shapes)}

    def smooth(self) -> List[str]:
        there = self.output_shapes()
        return [n for n in self.form.smooth() if n in there]

    def gradients(self, make: Fresh) -> Dict[str, Tensor]:
        """Tensors for the gradients of all inputs of reals; one that is not wanted is empty."""
        return {n: make(self.shapes[n] if n in self.wanted else (0,))
                for n in self.form.names() if self.form.kind(n) == ""}


def _forward(form: Form, *args: Any) -> Any:
    c = _Call(form, args)
    given, out = c.checked(), c.results(fresh_like(c.first))
    run = compute(c.making, given, {n: out[n] for n in c.output_shapes()}, c.smooth(), c.wanted)
    return (*out.values(), run)


def _backward(form: Form, *args: Any) -> Any:
    n = len(form.smooth())
    c = _Call(form, args[n:-1])
    given, grads = c.checked(), c.gradients(fresh_like(c.first))
    dy = {name: check("dra::" + form.name, "gradient of " + name, x, "")
          for name, x in zip(form.smooth(), args) if x is not None}
    compute_gradients(c.making, args[-1], given, dy, c.output_shapes(), c.smooth(),
                      {name: grads[name] for name in c.wanted})
    return tuple(grads.values())


def _schema(form: Form, before: Sequence[str], after: Sequence[str], results: int) -> str:
    inputs = ["Tensor%s %s" % ("?" if "?" in i or ":" in i else "", n)
              for i, n in zip(form.inputs, form.names())]
    options = ["float %s" % o for o in form.options]
    return "(%s) -> (%s)" % (", ".join([*before, *inputs, *options, *after]),
                             ", ".join(["Tensor"] * results))


def _register(form: Form) -> Callable[..., Any]:
    name, back = "dra::" + form.name, "dra::%s_backward" % form.name
    reals = [n for n in form.names() if form.kind(n) == ""]
    upstream = ["Tensor? d_" + n for n in form.smooth()]
    torch.library.define(name, _schema(form, (), ["int wanted"], len(form.outputs) + 1))
    torch.library.define(back, _schema(form, upstream, ["int wanted", "Tensor run"],
                                       len(reals)))
    for op, function in ((name, _forward), (back, _backward)):
        for device in ("cpu", "cuda"):
            torch.library.impl(op, device)(lambda *args, f=function: f(form, *args))

    def fake(*args: Any) -> Any:
        c = _Call(form, args)
        return (*c.results(fake_like(c.first)).values(), fake_token(c.wanted))

    def fake_backward(*args: Any) -> Any:
        c = _Call(form, args[len(upstream):-1])
        return tuple(c.gradients(fake_like(c.first)).values())

    torch.library.register_fake(name)(fake)
    torch.library.register_fake(back)(fake_backward)
    backward = getattr(torch.ops.dra, form.name + "_backward")

    def setup_context(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        n = len(form.inputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:n], output[-1])
        ctx.options = tuple(inputs[n:-1])
        ctx.wanted = sum(1 << i for i in range(n) if ctx.needs_input_grad[i])

    def gradient(ctx: Any, *dy: Any) -> Any:
        given = dict(zip(form.results(), dy))
        dys = [given[n] for n in form.smooth()]
        *saved, run = ctx.saved_tensors
        nothing = (None,) * (len(saved) + len(ctx.options) + 1)
        if all(d is None for d in dys):
            return nothing
        found = dict(zip(reals, backward(*dys, *saved, *ctx.options, ctx.wanted, run)))
        out = [found.get(n) if ctx.needs_input_grad[i] else None
               for i, n in enumerate(form.names())]
        return (*out, *nothing[len(saved):])

    torch.library.register_autograd(name, gradient, setup_context=setup_context)
    return getattr(torch.ops.dra, form.name)


OPERATORS = {name: _register(f.form) for name, f in functions.ALL.items()}


def call(name: str, given: Mapping[str, Any]) -> Any:
    """A function by name; its outputs, alone where there is one."""
    form = functions.ALL[name].form
    inputs = [given.get(n) for n in form.names()]
    options = [float(given.get(o, usual)) for o, usual in form.options.items()]
    wanted = sum(1 << i for i, x in enumerate(inputs) if x is not None and x.requires_grad)
    out = OPERATORS[name](*inputs, *options, wanted if torch.is_grad_enabled() else 0)
    return out[:-1] if len(out) > 2 else out[0]


# ---- modules -------------------------------------------------------------------------------------

#: By number, which stands for them in graphs of PyTorch.
_modules: "weakref.WeakValueDictionary[int, Module]" = weakref.WeakValueDictionary()


class _ModuleCall:
    """The arguments of torch.ops.dra.module: what is read, parameters and states, in this order."""

    def __init__(self, given: Sequence[Tensor], number: int, read: int, rows: int, fresh: bool,
                 wanted: Sequence[int]) -> None:
        self.module = m = _modules[number]
        names = [m.read, *(m.parameters[i].name for i in m.used)]
        names += [] if fresh else ["state." + s.name for s in m.states]
        self.shape, self.read, self.rows, self.fresh = tuple(given[0].shape), read, rows, fresh
        self.given = dict(zip(names, given))
        self.wanted = [names[i] for i in wanted]

    def checked(self) -> Dict[str, Tensor]:
        m = self.module
        device = same_device(m.what, self.given)
        out = {n: check(m.what, n, x, "i" if n == m.read and not m.width else "")
               for n, x in self.given.items()}
        tokens = m.tokens(*self.shape[:2], self.read, self.rows)
        return {**out, **{n: torch.from_numpy(x).to(device) for n, x in tokens.items()}}

    def making(self, *how: Any) -> Recipe:
        return self.module.recipe(self.shape, self.rows, self.fresh, *how)

    def results(self, make: Fresh) -> Dict[str, Tensor]:
        return {n: make(s) for n, s in
                zip(self.module.results(), self.module.shapes(self.shape, self.rows))}

    def gradients(self, make: Fresh) -> Dict[str, Tensor]:
        return {n: make(self.given[n].shape) for n in self.wanted}


def _module_forward(*args: Any) -> List[Tensor]:
    c = _ModuleCall(*args)
    out = c.results(fresh_like(args[0][0]))
    return [*out.values(), compute(c.making, c.checked(), out, list(out), c.wanted)]


def _module_backward(dy: Sequence[Tensor], run: Tensor, *args: Any) -> List[Tensor]:
    c = _ModuleCall(*args)
    names, grads = c.module.results(), c.gradients(fresh_like(args[0][0]))
    upstream = {n: check(c.module.what, "gradient of " + n, x, "") for n, x in zip(names, dy)}
    compute_gradients(c.making, run, c.checked(), upstream, {}, names, grads)
    return list(grads.values())


_ARGUMENTS = "Tensor[] given, int module, int read, int rows, bool fresh, int[] wanted"


def _register_modules() -> None:
    torch.library.define("dra::module", "(%s) -> Tensor[]" % _ARGUMENTS)
    torch.library.define("dra::module_backward",
                         "(Tensor[] dy, Tensor run, %s) -> Tensor[]" % _ARGUMENTS)
    for device in ("cpu", "cuda"):
        torch.library.impl("dra::module", device)(_module_forward)
        torch.library.impl("dra::module_backward", device)(_module_backward)

    def fake(*args: Any) -> List[Tensor]:
        c = _ModuleCall(*args)
        return [*c.results(fake_like(args[0][0])).values(), fake_token(c.wanted)]

    torch.library.register_fake("dra::module")(fake)
    torch.library.register_fake("dra::module_backward")(
        lambda dy, run, *args: list(
            _ModuleCall(*args).gradients(fake_like(args[0][0])).values()))

    def setup_context(ctx: Any, inputs: Sequence[Any], output: Sequence[Tensor]) -> None:
        given, *rest, wanted = inputs
        ctx.given, ctx.rest, ctx.wanted = len(given), rest, wanted
        ctx.results = [(y.shape, y.device) for y in output[:-1]]
        ctx.save_for_backward(*given, output[-1])

    def gradient(ctx: Any, dy: Sequence[Optional[Tensor]]) -> Any:
        *given, run = ctx.saved_tensors
        ups = [zeros(s, d) if x is None else x for x, (s, d) in zip(dy, ctx.results)]
        found = torch.ops.dra.module_backward(ups, run, given, *ctx.rest, ctx.wanted)
        grads: List[Optional[Tensor]] = [None] * ctx.given
        for i, g in zip(ctx.wanted, found):
            grads[i] = g
        return (grads, *[None] * (len(ctx.rest) + 1))

    torch.library.register_autograd("dra::module", gradient, setup_context=setup_context)


_register_modules()


def register(m: Module) -> None:
    """Makes it known to torch.ops.dra.module, as long as somebody has it."""
    _modules[m.number] = m


def call_module(m: Module, x: Tensor, parameters: Sequence[Tensor], states: Sequence[Tensor],
                read: int, rows: int) -> Tuple[List[Tensor], List[Tensor]]:
    """Outputs and states after x, of which the last `rows` items before are in `states`; none: it
    starts here."""
    given = [x, *parameters, *states]
    wanted = [i for i, t in enumerate(given) if t.requires_grad] if torch.is_grad_enabled() else []
    out = torch.ops.dra.module(given, m.number, read, rows, not states, wanted)
    n = len(m.outputs)
    return list(out[:n]), list(out[n:-1])
