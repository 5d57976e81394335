"""Every op of dra/ops.h against PyTorch on the CPU, forward and gradients.

    ops.py FLOAT_LIBRARY DOUBLE_LIBRARY [PART OF THE NAMES OF ROWS]

Not compared: gradients at ties of minimum, maximum and cummax, where dra gives one side all of it
and torch another or both; what dra refuses and what is outside a range (tests/ops does that).
Exit status 1 if a row is over its tolerance.
"""
import sys

import numpy
import torch
import torch.nn.functional as F

import dra
from compare import add_row, arrays, distinct, fixed, flags, ids, largest, main, normal, row
from compare import singles, ties, uniform

# ---- pointwise ----------------------------------------------------------------------------------

BIG = (3, 101, 67)  # more than one tile
WIDE = normal(*BIG, scale=4)
POSITIVE = uniform(0.1, 5, *BIG)


def straight(x, surrogate):
    """The value of x, the gradient of the surrogate."""
    return x.detach() + surrogate - surrogate.detach()


for name, x, theirs in [
        ("neg", WIDE, torch.neg), ("abs", WIDE, torch.abs), ("sign", WIDE, torch.sign),
        ("exp", WIDE, torch.exp), ("expm1", WIDE, torch.expm1), ("log", POSITIVE, torch.log),
        ("log1p", uniform(-0.5, 3, *BIG), torch.log1p), ("sqrt", POSITIVE, torch.sqrt),
        ("rsqrt", POSITIVE, torch.rsqrt), ("square", WIDE, torch.square),
        ("reciprocal", POSITIVE, torch.reciprocal), ("sin", WIDE, torch.sin),
        ("cos", WIDE, torch.cos), ("tanh", WIDE, torch.tanh), ("erf", WIDE, torch.erf),
        ("sigmoid", WIDE, torch.sigmoid), ("log_sigmoid", WIDE, F.logsigmoid),
        # Torch returns x itself above a threshold of 20, which float64 could tell.
        ("softplus", WIDE, lambda x: F.softplus(x, threshold=40)),
        ("relu", WIDE, F.relu), ("relu2", WIDE, lambda x: F.relu(x).square()),
        ("gelu", WIDE, F.gelu), ("gelu_tanh", WIDE, lambda x: F.gelu(x, approximate="tanh")),
        ("silu", WIDE, F.silu), ("elu", WIDE, F.elu),
        ("copy", WIDE, torch.clone), ("stop_gradient", WIDE, torch.detach)]:
    row(name, [x], lambda g, x, name=name: getattr(g, name)(x), theirs)

row("neg i32", [ids(9, 5, 7)], lambda g, x: g.neg(x), torch.neg)
row("abs i32", [ids(9, 5, 7, lowest=-9)], lambda g, x: g.abs(x), torch.abs)
row("not", [flags(5, 7)], lambda g, x: g.not_(x), torch.logical_not)
row("affine", [WIDE], lambda g, x: g.affine(x, 2.5, -3), lambda x: 2.5 * x - 3)
row("clamp", [WIDE], lambda g, x: g.clamp(x, -1.5, 2), lambda x: x.clamp(-1.5, 2))
row("clamp, at the bounds", [ties(7, 33)], lambda g, x: g.clamp(x, -1, 2), lambda x: x.clamp(-1, 2))
for name, theirs in ("abs", torch.abs), ("relu", F.relu), ("elu", F.elu):
    row(name + ", at 0", [ties(7, 33)], lambda g, x, name=name: getattr(g, name)(x), theirs)
row("straight_through", [normal(5, 7), normal(5, 7)],
    lambda g, x, s: g.straight_through(g.sign(x), s), lambda x, s: straight(x.sign(), s))

for kind, a, b in [("", BIG, BIG), (", row", BIG, BIG[2:]), (", both sides", (7, 1, 33), (9, 1)),
                   (", scalar", BIG, ())]:
    for name in "add sub mul div minimum maximum".split():
        # Divisors stay away from 0, where quotients grow without bounds.
        row(name + kind, [normal(*a), uniform(0.5, 2, *b)],
            lambda g, a, b, name=name: getattr(g, name)(a, b), getattr(torch, name))
row("pow", [uniform(0.1, 3, 7, 33), normal(9, 1, 33)], lambda g, a, b: g.pow(a, b), torch.pow)
row("mod", [normal(7, 33, scale=9), uniform(0.5, 3, 5, 1, 33)], lambda g, a, b: g.mod(a, b),
    torch.remainder, constant=(1,))
row("mod, negative b", [normal(7, 33, scale=9), uniform(-3, -0.5, 33)],
    lambda g, a, b: g.mod(a, b), torch.remainder, constant=(1,))
for name, theirs in [("add", torch.add), ("sub", torch.sub), ("mul", torch.mul),
                     ("div", lambda a, b: torch.div(a, b, rounding_mode="floor")),
                     ("mod", torch.remainder), ("minimum", torch.minimum),
                     ("maximum", torch.maximum)]:
    row(name + " i32", [ids(20, 7, 33, lowest=-20), ids(7, 7, 1, lowest=1)],
        lambda g, a, b, name=name: getattr(g, name)(a, b), theirs)
for ours, theirs in [("equal", torch.eq), ("not_equal", torch.ne), ("less", torch.lt),
                     ("less_equal", torch.le), ("greater", torch.gt), ("greater_equal", torch.ge)]:
    row(ours, [ties(7, 33), ties(33)], lambda g, a, b, n=ours: getattr(g, n)(a, b), theirs)
row("and", [flags(7, 33), flags(33)], lambda g, a, b: g.and_(a, b), torch.logical_and)
row("or", [flags(7, 33), flags(33)], lambda g, a, b: g.or_(a, b), torch.logical_or)
row("select", [flags(7, 33), normal(9, 7, 33), normal(7, 1)],
    lambda g, w, a, b: g.select(w, a, b), torch.where)


# ---- views, conversions -------------------------------------------------------------------------

row("reshape, permute", [normal(4, 6, 5)],
    lambda g, x: g.permute(g.reshape(x, (2, 2, -1, 5)), (3, 0, 2, 1)),
    lambda x: x.reshape(2, 2, 6, 5).permute(3, 0, 2, 1))
row("transpose, slice", [normal(4, 6, 5)], lambda g, x: g.slice(g.transpose(x, 0, -1), 1, 2, 3),
    lambda x: x.transpose(0, -1)[:, 2:5])
row("broadcast", [normal(6, 1)], lambda g, x: g.broadcast(x, (3, 6, 5)),
    lambda x: x.broadcast_to(3, 6, 5))
row("cast to i32", [WIDE], lambda g, x: g.cast(x, dra.I32), lambda x: x.to(torch.int32))
row("cast to bool", [ties(7, 33)], lambda g, x: g.cast(x, dra.BOOL), lambda x: x.to(torch.bool))
# Inputs exact in float32, because torch takes float64 there first and so rounds twice. Forward
# only, because torch rounds the gradient on its way back and dra keeps it real.
for name, dtype, half in ("f16", dra.F16, torch.float16), ("bf16", dra.BF16, torch.bfloat16):
    row(f"cast to {name} and back", [singles(*BIG, scale=4)],
        lambda g, x, dtype=dtype: g.cast(g.cast(x, dtype), g.lib.dtype),
        lambda x, half=half: x.to(half).to(x.dtype), gradient=False)
row("arange, integer, number", [], lambda g: [g.arange(9), g.integer(-7), g.number(0.1)],
    lambda: [torch.arange(9), torch.tensor(-7), torch.tensor(0.1, dtype=torch.float64)])


# ---- reductions ---------------------------------------------------------------------------------

for label, axes in [("last", (-1,)), ("first, keep", (0, "keep")), ("two", (0, 2)),
                    ("inner, keep", (1, "keep")), ("all", (0, 1, 2))]:
    dims = tuple(a for a in axes if a != "keep")
    for name, theirs in [("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax),
                         ("logsumexp", torch.logsumexp)]:
        row(f"{name}, {label}", [distinct(*BIG) if name == "max" else normal(*BIG)],
            lambda g, x, name=name, axes=axes: getattr(g, name)(x, axes),
            lambda x, theirs=theirs, dims=dims, keep="keep" in axes: theirs(x, dims, keepdim=keep))
row("max, ties share", [ties(7, 33)], lambda g, x: g.max(x, (-1,)), lambda x: x.amax(-1))
row("sum i32", [ids(9, 7, 33)], lambda g, x: g.sum(x, (0,)), lambda x: x.sum(0))
row("sum bool", [flags(7, 33)], lambda g, x: g.sum(x, (1,)), lambda x: x.sum(1))
row("sum_last", [normal(*BIG)], lambda g, x: g.sum_last(x), lambda x: x.sum(-1, keepdim=True))
row("sum_all", [normal(*BIG)], lambda g, x: g.sum_all(x), torch.sum)
row("argmax", [distinct(*BIG)], lambda g, x: g.argmax(x), lambda x: x.argmax(-1))
row("topk_threshold", [distinct(9, 67)], lambda g, x: g.topk_threshold(x, 5),
    lambda x: x.detach().topk(5).values[..., -1:])


def from_the_end(f):
    return lambda x: f(x.flip(1)).flip(1)


for name, f in [("cumsum", lambda x: x.cumsum(1)), ("cummax", lambda x: x.cummax(1).values)]:
    row(name, [distinct(*BIG)], lambda g, x, name=name: getattr(g, name)(x, 1, False), f)
    row(name + ", reverse", [distinct(*BIG)],
        lambda g, x, name=name: getattr(g, name)(x, 1, True), from_the_end(f))
row("cumsum i32", [ids(9, 7, 33)], lambda g, x: g.cumsum(x, -1, False), lambda x: x.cumsum(-1))


# ---- products -----------------------------------------------------------------------------------

for label, a, b in [("", (130, 70), (70, 150)), (", batched", (3, 2, 9, 17), (3, 2, 17, 5)),
                    (", broadcast", (4, 1, 9, 17), (3, 17, 5)),
                    (", one matrix", (5, 9, 17), (17, 5)),
                    (", inner size 1", (9, 1), (1, 7)), (", one row", (1, 300), (300, 200))]:
    row("matmul" + label, [normal(*a), normal(*b)], lambda g, a, b: g.matmul(a, b), torch.matmul)
row("matmul, transposed", [normal(3, 70, 40), normal(3, 50, 70)],
    lambda g, a, b: g.matmul(g.transpose(a, 1, 2), g.transpose(b, 1, 2)), lambda a, b: a.mT @ b.mT)
row("linear", [normal(5, 33, 70), normal(90, 70), normal(90)],
    lambda g, x, w, b: g.linear(x, w, b), F.linear)
row("linear, no bias", [normal(9, 70), normal(90, 70)], lambda g, x, w: g.linear(x, w), F.linear)


# ---- moving elements ----------------------------------------------------------------------------

for axis in 0, 1, 2:
    shapes = [[4, 6, 5], [4, 6, 5], [4, 6, 5]]
    shapes[0][axis], shapes[1][axis] = 1, 70
    row(f"concat, axis {axis}", [normal(*s) for s in shapes],
        lambda g, *x, axis=axis: g.concat(x, axis), lambda *x, axis=axis: torch.cat(x, axis))
row("pad", [normal(4, 6, 5)], lambda g, x: g.pad(x, 1, 2, 3, -1.5),
    lambda x: F.pad(x, (0, 0, 2, 3), value=-1.5))
row("flip", [normal(4, 6, 5)], lambda g, x: g.flip(x, 1), lambda x: x.flip(1))
row("shift", [normal(4, 6, 5)], lambda g, x: g.shift(x, 1, 2),
    lambda x: F.pad(x, (0, 0, 2, 0))[:, :6])
row("shift, negative", [normal(4, 6, 5)], lambda g, x: g.shift(x, -1, -3),
    lambda x: F.pad(x, (0, 3))[..., 3:])
row("repeat", [normal(4, 6, 5)], lambda g, x: g.repeat(x, 1, 3),
    lambda x: x.repeat_interleave(3, 1))
row("gather", [normal(4, 70, 5), ids(70, 4, 90, 5)], lambda g, x, i: g.gather(x, i, 1),
    lambda x, i: x.gather(1, i.long()))
row("scatter_add", [normal(4, 70, 5), ids(70, 4, 90, 5), normal(4, 90, 5)],
    lambda g, x, i, s: g.scatter_add(x, i, s, 1), lambda x, i, s: x.scatter_add(1, i.long(), s))
row("embedding", [normal(50, 33), ids(50, 4, 70)], lambda g, t, i: g.embedding(t, i),
    lambda t, i: F.embedding(i.long(), t))
row("one_hot", [ids(50, 4, 7)], lambda g, i: g.one_hot(i, 50),
    lambda i: F.one_hot(i.long(), 50).double())
# The last entry of b = 0 is padding.
row("write_rows", [normal(2, 6, 5), normal(2, 3, 5), fixed(numpy.int32([[4, 0, -1], [5, 2, 3]]))],
    lambda g, x, rows, at: g.write_rows(x, rows, at),
    lambda x, rows, at: x.index_put((torch.tensor([0, 0, 1, 1, 1]), at[at >= 0].long()),
                                    rows[at >= 0]))


# ---- norms, softmax, gated activations ----------------------------------------------------------

C = BIG[-1]
row("layer_norm", [normal(*BIG), normal(C), normal(C)],
    lambda g, x, w, b: g.layer_norm(x, w, b, 1e-5),
    lambda x, w, b: F.layer_norm(x, (C,), w, b, 1e-5))
row("layer_norm, no bias", [normal(*BIG), normal(C)],
    lambda g, x, w: g.layer_norm(x, w, None, 1e-5),
    lambda x, w: F.layer_norm(x, (C,), w, None, 1e-5))
row("layer_norm, plain", [normal(*BIG)], lambda g, x: g.layer_norm(x, None, None, 1e-5),
    lambda x: F.layer_norm(x, (C,)))
row("rms_norm", [normal(*BIG), normal(C)], lambda g, x, w: g.rms_norm(x, w, 1e-6),
    lambda x, w: F.rms_norm(x, (C,), w, 1e-6))
row("rms_norm, plain", [normal(*BIG)], lambda g, x: g.rms_norm(x, None, 1e-6),
    lambda x: F.rms_norm(x, (C,), None, 1e-6))
row("group_norm", [normal(40, 5, 24), normal(24), normal(24)],
    lambda g, x, w, b: g.group_norm(x, 4, w, b, 1e-5),
    lambda x, w, b: F.group_norm(x.reshape(-1, 24), 4, w, b, 1e-5).reshape(x.shape))
row("group_norm, plain", [normal(40, 24)], lambda g, x: g.group_norm(x, 6, None, None, 1e-5),
    lambda x: F.group_norm(x, 6))
row("unit_clamped (normalize)", [normal(*BIG)], lambda g, x: g.unit_clamped(x, 1e-12),
    lambda x: F.normalize(x, dim=-1))
row("unit_clamped, below eps", [normal(9, 5, scale=0.01)], lambda g, x: g.unit_clamped(x, 0.5),
    lambda x: F.normalize(x, dim=-1, eps=0.5))
row("unit", [normal(*BIG)], lambda g, x: g.unit(x, 1e-6),
    lambda x: x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt())
for label, w in [("", (C,)), (", scalar", ())]:
    row("scale_norm" + label, [normal(*BIG), normal(*w)], lambda g, x, w: g.scale_norm(x, w, 1e-12),
        lambda x, w: F.normalize(x, dim=-1) * C**0.5 * w)

row("softmax", [WIDE], lambda g, x: g.softmax(x), lambda x: x.softmax(-1))
row("log_softmax", [WIDE], lambda g, x: g.log_softmax(x), lambda x: x.log_softmax(-1))
row("softmax, masked", [WIDE, flags(*BIG)],
    lambda g, x, m: g.softmax(g.select(m, x, g.number(dra.MASKED))),
    lambda x, m: x.masked_fill(~m, -torch.inf).softmax(-1))

ACTIVATE = {"none": lambda x: x, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": F.relu,
            "relu2": lambda x: F.relu(x).square(), "gelu": F.gelu, "silu": F.silu, "elu": F.elu,
            "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
            "softplus": lambda x: F.softplus(x, threshold=40)}
for number, name in enumerate(dra.ACTIVATIONS):
    act = ACTIVATE[name]
    row("activate, " + name, [WIDE], lambda g, x, i=number: g.activate(x, i),
        lambda x, act=act: act(x))
    row("glu, " + name, [normal(9, 70)], lambda g, x, i=number: g.glu(x, i),
        F.glu if name == "sigmoid" else lambda x, act=act: x[..., :35] * act(x[..., 35:]))


# ---- positions ----------------------------------------------------------------------------------

def rotated(x, pos, width, base=10000.0, stretch=1.0, halves=False, xpos=None):
    """Rotary positions through complex numbers: pair c times f e^(i angle)."""
    c = torch.arange(0, width, 2, dtype=torch.float64)
    place = pos[:, None, :, None].double()
    angle = place * base**(-c / width) / stretch
    f = torch.ones_like(angle)
    if xpos:
        f = ((c + 0.4 * width) / (1.4 * width)) ** ((place - xpos[1]) / xpos[0])
    part, rest = x[..., :width], x[..., width:]
    pairs = part.unflatten(-1, (2, -1)).mT if halves else part.unflatten(-1, (-1, 2))
    y = torch.view_as_complex(pairs.contiguous()) * torch.polar(f, angle).to(x.dtype.to_complex())
    y = torch.view_as_real(y)
    return torch.cat([(y.mT if halves else y).flatten(-2), rest], -1)


X, POS = normal(2, 3, 9, 16), ids(5000, 2, 9)
row("rotary", [X, POS], lambda g, x, p: g.rotary(x, p), lambda x, p: rotated(x, p, 16))
row("rotary, halves, part", [X, POS],
    lambda g, x, p: g.rotary(x, p, dra.Rotary(width=10, halves=True, base=500, stretch=4)),
    lambda x, p: rotated(x, p, 10, 500, 4, True))
row("rotary, xPos", [X, ids(300, 2, 9)],
    lambda g, x, p: g.rotary(x, p, dra.Rotary(xpos_base=512, xpos_center=100)),
    lambda x, p: rotated(x, p, 16, xpos=(512, 100)))
row("rotary, xPos of keys", [X, ids(300, 2, 9)],
    lambda g, x, p: g.rotary(x, p, dra.Rotary(xpos_base=512, xpos_center=100, xpos_invert=True)),
    lambda x, p: rotated(x, p, 16, xpos=(-512, 100)))


# ---- losses -------------------------------------------------------------------------------------

IGNORE = 3  # a target of the vocabulary, so that some rows do not count
for label, ours, theirs in [
        ("", {}, {}), (", ignore_index", {"ignore": IGNORE, "use_ignore": True},
                       {"ignore_index": IGNORE}),
        (", smoothing", {"smoothing": 0.1}, {"label_smoothing": 0.1}),
        (", both", {"ignore": IGNORE, "use_ignore": True, "smoothing": 0.1},
         {"ignore_index": IGNORE, "label_smoothing": 0.1})]:
    how = dra.CrossEntropy(**ours) if ours else None
    row("cross_entropy" + label, [normal(5, 13, 37, scale=3), ids(37, 5, 13)],
        lambda g, x, t, how=how: g.cross_entropy(x, t, how),
        lambda x, t, k=theirs: F.cross_entropy(x.flatten(0, 1), t.flatten().long(), **k))
    row("token_losses" + label, [normal(5, 13, 37, scale=3), ids(37, 5, 13)],
        lambda g, x, t, how=how: g.token_losses(x, t, how),
        lambda x, t, k=theirs: F.cross_entropy(x.mT, t.long(), reduction="none", **k))
    row("linear_cross_entropy" + label, [normal(4, 75, 20), normal(141, 20), ids(141, 4, 75)],
        lambda g, x, w, t, how=how: g.linear_cross_entropy(x, w, t, how),
        lambda x, w, t, k=theirs: F.cross_entropy(F.linear(x, w).flatten(0, 1),
                                                  t.flatten().long(), **k))


# ---- attention ----------------------------------------------------------------------------------

B, H, T, J, D, E = 2, 4, 70, 90, 20, 24  # several tiles of queries and of keys
sdpa = F.scaled_dot_product_attention


def attention(name, options, config, theirs, paths=(dra.PLAIN, dra.TILED), keys=J, heads=H):
    """config(g, *options) returns the fields of a dra.Attend."""
    for path in paths:
        def ours(g, q, k, v, *o, path=path):
            return g.attend(q, k, v, dra.Attend(path=path, **config(g, *o)))
        row(f"attend, {name}, {'plain' if path == dra.PLAIN else 'tiled'}",
            [normal(B, H, T, D), normal(B, heads, keys, D), normal(B, heads, keys, E)] + options,
            ours, theirs)


def causal(g, window=0):
    return g.causal_interval(None, B, T, window)


def sees(window=T):
    """(T, T): true where a query sees a key, the last `window` of those up to itself."""
    t, j = torch.arange(T)[:, None], torch.arange(T)
    return (j <= t) & (j > t - window)


def alibi(slopes, keys):
    """(1, H, T, keys); the last query stands at the last key."""
    t, j = torch.arange(keys - T, keys)[:, None], torch.arange(keys)
    return (-slopes[:, None, None] * (t - j).abs())[None]


def weighted(q, k, v, weights):
    return weights(q @ k.mT * D**-0.5) @ v


some = flags(B, 1, T, J, p=0.7)
attention("all", [], lambda g: {}, sdpa)
attention("scale", [], lambda g: {"scale": 0.1}, lambda q, k, v: sdpa(q, k, v, scale=0.1))
attention("causal", [], causal, lambda q, k, v: sdpa(q, k, v, is_causal=True), keys=T)
attention("window", [], lambda g: causal(g, 11),
          lambda q, k, v: sdpa(q, k, v, attn_mask=sees(11)), keys=T)
attention("mask", [some], lambda g, m: {"mask": m}, lambda q, k, v, m: sdpa(q, k, v, attn_mask=m))
attention("mask, seeing nothing", [flags(B, H, T, J, p=0.01)], lambda g, m: {"mask": m},
          lambda q, k, v, m: sdpa(q, k, v, attn_mask=m))
attention("bias", [normal(H, T, J)], lambda g, b: {"bias": b},
          lambda q, k, v, b: sdpa(q, k, v, attn_mask=b[None]))
attention("bias of keys", [normal(B, 1, 1, J)], lambda g, b: {"bias": b},
          lambda q, k, v, b: sdpa(q, k, v, attn_mask=b.expand(B, H, T, J)))
attention("ALiBi", [uniform(0.01, 0.5, H)], lambda g, s: {"slopes": s},
          lambda q, k, v, s: sdpa(q, k, v, attn_mask=alibi(s, J)))
attention("ALiBi, causal", [uniform(0.01, 0.5, H)], lambda g, s: {"slopes": s, **causal(g)},
          lambda q, k, v, s: sdpa(q, k, v, attn_mask=alibi(s, T).masked_fill(~sees(), -torch.inf)),
          keys=T)
attention("grouped heads", [], lambda g: {}, lambda q, k, v: sdpa(q, k, v, enable_gqa=True),
          heads=2)
attention("grouped heads, causal", [], causal,
          lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True), heads=2, keys=T)
attention("grouped heads, modulo", [], lambda g: {"heads": dra.HEADS_MOD},
          lambda q, k, v: sdpa(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)), heads=2)
attention("softcap", [], lambda g: {"softcap": 1.5}, lambda q, k, v: weighted(
    q, k, v, lambda s: (1.5 * torch.tanh(s / 1.5)).softmax(-1)))


def top(s, k):
    return s.masked_fill(s < s.topk(k).values[..., -1:], -torch.inf).softmax(-1)


attention("top 5", [], lambda g: {"topk": 5},
          lambda q, k, v: weighted(q, k, v, lambda s: top(s, 5)), paths=(dra.PLAIN,))
attention("top 5, straight", [], lambda g: {"topk": 5, "topk_straight": True},
          lambda q, k, v: weighted(q, k, v, lambda s: straight(top(s, 5), s.softmax(-1))),
          paths=(dra.PLAIN,))
attention("hard", [], lambda g: {"hard": True}, lambda q, k, v: weighted(
    q, k, v, lambda s: straight(F.one_hot(s.argmax(-1), J).to(s.dtype), s.softmax(-1))),
    paths=(dra.PLAIN,))


def attend_with_scores(g, q, k, v, bias):
    scores = dra.Value()
    y = g.attend(q, k, v, dra.Attend(bias=bias, scores=dra.ctypes.pointer(scores)))
    return y, scores


row("attend, scores", [normal(B, H, 9, D), normal(B, H, 7, D), normal(B, H, 7, E), normal(9, 7)],
    attend_with_scores, lambda q, k, v, b: (sdpa(q, k, v, attn_mask=b), q @ k.mT * D**-0.5 + b))


# ---- a scan: GRU --------------------------------------------------------------------------------

def gru_step(g, carry, x, weights):
    """torch.nn.GRUCell: r and z are gates, n is what is new, h' = (1 - z) n + z h."""
    (h,), (w_x, w_h, b_x, b_h), width = carry, weights, 6
    from_x, from_h = g.linear(x[0], w_x, b_x), g.linear(h, w_h, b_h)
    part = [[g.slice(y, 1, i * width, width) for i in range(3)] for y in (from_x, from_h)]
    r = g.sigmoid(g.add(part[0][0], part[1][0]))
    z = g.sigmoid(g.add(part[0][1], part[1][1]))
    n = g.tanh(g.add(part[0][2], g.mul(r, part[1][2])))
    h = g.add(n, g.mul(z, g.sub(h, n)))
    return [h], [h]


def gru(g, x, h, *weights, **how):
    (last,), (y,) = g.scan(17, gru_step, [h], [x], weights, 1, **how)
    return y, last


def torch_gru(x, h, *weights, steps=range(17)):
    cell, y = torch.nn.GRUCell(x.shape[-1], h.shape[-1], dtype=x.dtype), [None] * len(x)
    named = dict(zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights))
    for t in steps:
        h = y[t] = torch.func.functional_call(cell, named, (x[t], h))
    return torch.stack(y), h


GRU = [normal(17, 5, 4), normal(5, 6), normal(18, 4), normal(18, 6), normal(18), normal(18)]
row("scan, GRU", GRU, gru, torch_gru)
row("scan, GRU, reverse, border 3", GRU, lambda g, *x: gru(g, *x, reverse=True, border=3),
    lambda *x: torch_gru(*x, steps=range(16, -1, -1)))


# ---- optimizer ----------------------------------------------------------------------------------

def clipped(limit):
    def ours(g, *x):
        norm = g.global_norm(x)
        s = g.clip_factor(norm, limit)
        return [norm] + [g.mul(y, s) for y in x]

    def theirs(*x):
        p = [torch.nn.Parameter(torch.zeros_like(y)) for y in x]
        for q, y in zip(p, x):
            q.grad = y.detach().clone()
        norm = torch.nn.utils.clip_grad_norm_(p, limit)
        return [norm] + [q.grad for q in p]
    return ours, theirs


for label, limit in ("", 1.0), (", within", 1e6):
    row("clip_grad_norm_" + label, [normal(300, 70), normal(33), normal()], *clipped(limit))

RATE, ADAMW = 0.01, {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}


def adamw_row(name, inputs, steps, limit):
    """p, m and v after some steps with gradients clipped to `limit`, updated by donation."""
    def measure(lib, r):
        p = arrays(lib, r, inputs)
        slopes = [arrays(lib, r, [normal(*i.shape) for i in inputs]) for _ in range(steps)]
        theirs = in_torch([torch.nn.Parameter(torch.tensor(a)) for a in p], slopes, limit)
        states = [[a, numpy.zeros_like(a), numpy.zeros_like(a)] for a in p]
        adamw_run(lib, states, slopes, limit)
        return largest(sum(states, []), theirs), None
    add_row(name, inputs, measure)


def in_torch(p, slopes, limit):
    optimizer = torch.optim.AdamW(p, lr=RATE, **ADAMW)
    for step in slopes:
        for x, dx in zip(p, step):
            x.grad = torch.tensor(dx)
        torch.nn.utils.clip_grad_norm_(p, limit)
        optimizer.step()
    return [t for x in p for t in (x, optimizer.state[x]["exp_avg"],
                                   optimizer.state[x]["exp_avg_sq"])]


def adamw_run(lib, states, slopes, limit):
    g, config = lib.graph(), dra.AdamW(*ADAMW["betas"], ADAMW["eps"], ADAMW["weight_decay"])
    t = g.bind("input", "t", numpy.zeros((), numpy.int32))
    dx = [g.bind("input", f"dp{i}", a.copy()) for i, a in enumerate(slopes[0])]
    s = g.clip_factor(g.global_norm(dx), limit)
    for i, arrays_of_one in enumerate(states):
        p = g.bind("parameter", f"p{i}", arrays_of_one[0])
        m, v = (g.bind("state", f"{n}{i}", a) for n, a in zip("mv", arrays_of_one[1:]))
        new = g.adamw(p, dx[i], m, v, g.number(RATE), s, t, config)
        for name, value, state in ("p", new.p, p), ("m", new.m, m), ("v", new.v, v):
            g.donate(f"new {name}{i}", value, state)
    program = g.compile()
    for number, step in enumerate(slopes):
        g.arrays["t"][...] = number + 1
        for i, a in enumerate(step):
            g.arrays[f"dp{i}"][...] = a
        program.run()


adamw_row("AdamW, 10 steps", [normal(300, 67)], 10, 1e9)
adamw_row("AdamW, 10 steps, clipped", [normal(300, 67), normal(33), normal()], 10, 1.0)


if __name__ == "__main__":
    sys.exit(main())
