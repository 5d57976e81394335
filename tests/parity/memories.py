"""Mixers against PyTorch: outputs, final states and all gradients, from a random first state.

The same weights in both; gradients are those under a random upstream of outputs and final states.
A difference is relative to the tensor's largest element. Gradients of tensors that matter little
(a bias of keys moves all scores of a softmax alike: 0 but for rounding) are measured by a hundredth
of the largest element of dx.
"""
import sys

import numpy
import torch
from torch.func import functional_call

import originals
from compare import add_row, difference, main, normal
from mixer import Mixer

B, T = 2, 150  # more than a block of keys in attention
COLUMNS = ("y", "states", "dx", "d others")


# ---- one row ------------------------------------------------------------------------------------

def row(name, C, H, theirs, fixed=None, fresh=False, **memory):
    """theirs(t) has x, parameters and first state by name; it returns y and the final states by
    name. `fixed`: parameters of one known value, which is none to PyTorch. `fresh`: without a first
    state, as in training."""
    fixed = fixed or {}

    def measure(lib, r):
        mixer = Mixer(lib, dim=C, heads=H, bias=True, a=memory)
        params = {n: draw(r, n, s, fixed) for n, s in mixer.params.items()}
        state = {n: first(r, n, s, fresh) for n, s in mixer.state(B, T).items()}
        data = {n: numpy.ascontiguousarray(a, lib.real)
                for n, a in {"x": r.normal(size=(B, T, C)), **params, **state}.items()}
        wanted = ["x"] + [n for n in params if n not in fixed]
        wanted += [] if fresh else [n for n in state if n not in ("p", "K", "V")]
        t = {n: torch.tensor(a, requires_grad=n in wanted) for n, a in data.items()}
        y, after = theirs(t)
        results = {"y": y, **after}
        up = {n: r.normal(size=v.shape).astype(lib.real)
              for n, v in results.items() if v.requires_grad}
        dx = torch.autograd.grad([results[n] for n in up], [t[n] for n in wanted],
                                 [torch.tensor(u) for u in up.values()])
        return compared(in_dra(mixer, fresh, data, up, wanted, after), results,
                        dict(zip(wanted, dx)))
    add_row(name, [normal(B, T, C)], measure)


def draw(r, name, shape, fixed):
    if name in fixed:
        return numpy.full(shape, fixed[name])
    scale = shape[-1] ** -0.5 if len(shape) > 1 and not name.startswith(("beta", "mix")) else 1
    return r.normal(0, scale, shape)


def first(r, name, shape, fresh):
    """A state as it might be: denominators are positive, there are no items yet."""
    if name in ("K", "V"):
        return numpy.zeros(shape)
    if fresh:
        return numpy.full(shape, -1e30 if name == "p" else 0.0)
    return r.uniform(0.5, 1.5, shape) if name == "B" else r.uniform(-0.5, 0.5, shape)


def in_dra(mixer, fresh, data, up, wanted, after):
    """y, final states and gradients by name; those of gradients have a d before them."""
    layer = mixer.layer(B, T, fresh)
    g, values = layer.g, {"x": layer.x, **layer.params, **layer.state}
    for name in values:
        g.arrays[f"state.{name}" if name in layer.state else name] = data[name]
    results = {"y": layer.y, **layer.after}
    dy = [g.bind("input", f"up {n}", a) for n, a in up.items()]
    dx = g.gradient([results[n] for n in up], dy, [values[n] for n in wanted])
    program = g.compile(**{n: layer.after[n] for n in after},
                        **{f"d {n}": v for n, v in zip(wanted, dx)})
    return {**program.run(), "y": program.result("y")}


def compared(ours, results, gradients):
    """The largest difference of each column."""
    results, dx = ({n: v.detach().numpy() for n, v in d.items()} for d in (results, gradients))
    least = 0.01 * numpy.abs(dx["x"]).max()
    return (difference(ours["y"], results.pop("y")),
            max(difference(ours[n], a) for n, a in results.items()),
            difference(ours["d x"], dx.pop("x")),
            max(difference(ours[f"d {n}"], a, least) for n, a in dx.items()))


# ---- gru: the modules it comes from -------------------------------------------------------------

def named(t, projections, cells):
    """Parameters as the module names them."""
    found = {}
    for name, ours in zip(projections, "qkvo"):
        found[f"{name}.weight"], found[f"{name}.bias"] = t[f"W_{ours}"], t[f"b_{ours}"]
    for name, ours in zip(cells, "kv"):
        for kind in "ih", "hh":
            found[f"{name}.weight_{kind}"] = t[f"{ours}_W_{kind}"]
            found[f"{name}.bias_{kind}"] = t[f"{ours}_b_{kind}"]
    return found


def recurrent(C, H, gamma):
    """gamma(t): a number, or one for each of B H rows."""
    def theirs(t):
        core = originals.RecurrentCore(C, H, gamma(t))
        weights = named(t, ("W_q", "W_k", "W_v", "W_o"), ("gru_k", "gru_v"))
        mask = originals.causal_mask(T, t["x"].dtype)
        y, hk, hv = functional_call(core, weights, (t["x"], t["h_k"], t["h_v"], mask))
        return y, {"h_k": hk, "h_v": hv}
    return theirs


def last_token(C, decay):
    def theirs(t):
        core = originals.LastTokenCore(C, decay)
        weights = named(t, ("q", "k", "v", "out"), ("cell.0", "cell.1"))
        y, *last = functional_call(core, weights, (t["x"], t["h_k"][:, 0], t["h_v"][:, 0]))
        return y, {n: h.unsqueeze(1) for n, h in zip(("h_k", "h_v"), last)}
    return theirs


def logit(gamma):
    return numpy.log(gamma / (1 - gamma))


def by_head(t):
    return torch.sigmoid(t["beta"]).repeat(B)[:, None]


GRU = {"memory": "gru", "retrieval": "time"}
row("gru + time, gamma 0.9", 48, 3, recurrent(48, 3, lambda t: 0.9), {"beta": logit(0.9)}, **GRU)
row("gru + time, gamma 0.9, fresh", 48, 3, recurrent(48, 3, lambda t: 0.9), {"beta": logit(0.9)},
    fresh=True, **GRU)
row("gru + time, gamma per head", 48, 3, recurrent(48, 3, by_head), **GRU)
row("gru + time, D 64", 128, 2, recurrent(128, 2, by_head), fresh=True, **GRU)
row("gru + joint, H 1, gamma 0.97", 24, 1, last_token(24, 0.97), {"beta": logit(0.97)},
    memory="gru", retrieval="joint")


# ---- the others ---------------------------------------------------------------------------------

def heads(t, H):
    """q, k, v (B, T, H, D)"""
    parts = (torch.nn.functional.linear(t["x"], t[f"W_{n}"], t[f"b_{n}"]) for n in "qkv")
    return (part.view(B, T, H, -1) for part in parts)


def out(t, y):
    return torch.nn.functional.linear(y.reshape(B, T, -1), t["W_o"], t["b_o"])


def append(H):
    def theirs(t):
        q, k, v = heads(t, H)
        return out(t, originals.causal(q, k, v)), {"K": k, "V": v}
    return theirs


def ema(H):
    def theirs(t):
        q, k, v = heads(t, H)
        keys, m_k = originals.ema(k, t["m_k"], t["beta_k"], t.get("mix_k"))
        items, m_v = originals.ema(v, t["m_v"], t["beta_v"], t.get("mix_v"))
        return out(t, originals.causal(q, keys, items)), {"m_k": m_k, "m_v": m_v}
    return theirs


def wkv(t):
    q, k, v = (part.squeeze(2) for part in heads(t, 1))
    y, *last = originals.wkv(k, v, -torch.exp(t["time_decay"]), t["time_first"], t["A"], t["B"],
                             t["p"])
    return out(t, torch.sigmoid(q) * y), dict(zip("ABp", last))


row("append + time", 48, 3, append(3), memory="append", retrieval="time")
for M in 1, 3:
    row(f"ema + time, M {M}", 48, 3, ema(3), memory="ema", retrieval="time", timescales=M)
row("wkv", 48, 3, wkv, memory="wkv")
row("wkv, fresh", 48, 3, wkv, fresh=True, memory="wkv")


if __name__ == "__main__":
    sys.exit(main("mixer", COLUMNS, header=None))
