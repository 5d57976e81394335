"""dra.torch against plain loops of PyTorch in float64, gradients too."""
import unittest

import numpy as np

import dra
from common import SMALL, TEXT, Case, small

try:
    import torch
    from torch.nn.functional import logsigmoid, normalize, softmax
    import dra.torch as D
except ImportError:
    torch = None

B, T, H, N, E = 2, 19, 3, 8, 6


def steps(x):
    return x.unbind(1)


def fade(l, t, S):
    """e^l_t of a state (B, H, F, E), for decays of all kinds."""
    if l is None:
        return torch.ones_like(S[..., :1])
    at = l[:, t] if l.dim() > 2 else l
    at = at if at.dim() > 1 and at.shape[-1] == S.shape[2] and l.dim() in (2, 4) else at[..., None]
    return at.exp()[..., None] if at.dim() == 3 else at.exp()[None, ..., None]


def delta(q, k, v, b=None, l=None, S=None, recall=None, replace=None):
    S = torch.zeros(B, H, N, E, dtype=q.dtype) if S is None else S
    ys = []
    for t in range(q.shape[1]):
        if recall is not None:
            p = torch.einsum("bhfe,bhf->bhe", S, recall[:, t])
            S = fade(l, t, S) * S + torch.einsum("bhf,bhe->bhfe", replace[:, t], p)
            S = S + torch.einsum("bhf,bhe->bhfe", k[:, t], v[:, t])
        else:
            S = fade(l, t, S) * S
            miss = v[:, t] - torch.einsum("bhfe,bhf->bhe", S, k[:, t])
            S = S + torch.einsum("bhf,bhe->bhfe", k[:, t], b[:, t, :, None] * miss)
        ys.append(torch.einsum("bhfe,bhf->bhe", S, q[:, t]))
    return torch.stack(ys, 1), S


def moment(q, k, v, l=None, S=None, z=None, u=None, normalise=False, eps=0.0):
    S = torch.zeros(B, H, N, E, dtype=q.dtype) if S is None else S
    z = torch.zeros(B, H, N, dtype=q.dtype) if z is None else z
    ys = []
    for t in range(q.shape[1]):
        write = torch.einsum("bhf,bhe->bhfe", k[:, t], v[:, t])
        e = fade(l, t, S)
        if u is not None:
            y = torch.einsum("bhfe,bhf->bhe", S + u[None, :, :, None] * write, q[:, t])
        S, z = e * S + write, e[..., 0] * z + k[:, t]
        if u is None:
            y = torch.einsum("bhfe,bhf->bhe", S, q[:, t])
        if normalise:
            y = y / ((q[:, t] * z).sum(-1, keepdim=True) + eps)
        ys.append(y)
    return (torch.stack(ys, 1), S, z) if normalise else (torch.stack(ys, 1), S)


def wkv(k, v, w, u):
    A = Z = torch.zeros_like(k[:, 0])
    ys = []
    for kt, vt in zip(steps(k), steps(v)):
        ys.append((A + (u + kt).exp() * vt) / (Z + (u + kt).exp()))
        A, Z = w.exp() * A + kt.exp() * vt, w.exp() * Z + kt.exp()
    return (torch.stack(ys, 1),)


def ema(x, beta, w):
    g, m, ys = torch.sigmoid(beta), torch.zeros(B, *beta.shape, dtype=x.dtype), []
    for xt in steps(x):
        m = m + (1 - g) * (xt[:, None] - m)
        ys.append((w * m).sum(1))
    return torch.stack(ys, 1), m


def gru(x, w, b, beta):
    D3, g = x.shape[-1], torch.sigmoid(beta)
    h, hs = torch.zeros(B, H, D3 // 3, dtype=x.dtype), []
    for xt in steps(x):
        xr, xz, xn = xt.chunk(3, -1)
        wr, wz, wn = (torch.einsum("bhd,kd->bhk", h, p) + c for p, c in
                      zip(w.chunk(3), b.chunk(3)))
        r, z = torch.sigmoid(xr + wr), torch.sigmoid(xz + wz)
        c = (1 - z) * torch.tanh(xn + r * wn) + z * h
        h = h + (1 - g) * (c - h)
        hs.append(h)
    return torch.stack(hs, 1), h


def lstm(x, w, b):
    h = c = torch.zeros(B, H, x.shape[-1] // 4, dtype=x.dtype)
    hs = []
    for xt in steps(x):
        i, f, n, o = (xt + torch.einsum("bhd,kd->bhk", h, w) + b).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(n)
        h = torch.sigmoid(o) * torch.tanh(c)
        hs.append(h)
    return torch.stack(hs, 1), h, c


def slots(q, k, v, l, u):
    P = torch.zeros(B, H, l.shape[-1], q.shape[-1], dtype=q.dtype)
    Q = torch.zeros(B, H, l.shape[-1], v.shape[-1], dtype=q.dtype)
    ys = []
    for t in range(q.shape[1]):
        e, ut = l[:, t].exp()[..., None], u[:, t][..., None]
        P, Q = e * P + ut * k[:, t, :, None], e * Q + ut * v[:, t, :, None]
        a = softmax(torch.einsum("bhd,bhsd->bhs", q[:, t], P) / q.shape[-1]**0.5, -1)
        ys.append(torch.einsum("bhs,bhse->bhe", a, Q))
    return torch.stack(ys, 1), P, Q


def attend(q, k, v, causal=False, window=0, bias=None, slopes=None, softcap=0.0, mask=None):
    groups = q.shape[1] // k.shape[1]
    k, v = (a.repeat_interleave(groups, 1) for a in (k, v))
    s = q @ k.transpose(-1, -2) / q.shape[-1]**0.5
    s = softcap * torch.tanh(s / softcap) if softcap else s
    s = s + bias if bias is not None else s
    t, j = torch.arange(s.shape[2])[:, None] + s.shape[3] - s.shape[2], torch.arange(s.shape[3])
    s = s - slopes[:, None, None] * (t - j).abs() if slopes is not None else s
    seen = torch.ones_like(t - j, dtype=torch.bool)
    seen = seen & (j <= t) if causal else seen
    seen = seen & (j > t - window) if window else seen
    s = s.masked_fill(~(seen if mask is None else seen & mask), float("-inf"))
    return (softmax(s, -1) @ v,)


@unittest.skipIf(torch is None, "no torch")
class Functions(Case):
    def setUp(self):
        torch.manual_seed(7)

    def compare(self, function, reference, inputs, tolerance=1e-5, **options):
        """Outputs, and gradients with upstreams by chance."""
        mine = {n: x.clone().requires_grad_(x.dtype.is_floating_point) for n, x in inputs.items()}
        theirs = {n: x.double().requires_grad_() if x.dtype.is_floating_point else x
                  for n, x in inputs.items()}
        a, b = function(**mine, **options), reference(**theirs, **options)
        a = a if isinstance(a, (tuple, list)) else (a,)
        ups = [torch.randn_like(y) for y in b]
        for i, y in enumerate(b):
            self.near(a[i].detach(), y.detach(), tolerance, "output %d" % i)
        sum((x * u.float()).sum() for x, u in zip(a, ups)).backward()
        sum((x * u).sum() for x, u in zip(b, ups)).backward()
        for n, x in mine.items():
            if x.requires_grad:
                self.near(x.grad, theirs[n].grad, 5 * tolerance, "gradient of " + n)

    def qkv(self):
        q, k, v = torch.randn(B, T, H, N), torch.randn(B, T, H, N), torch.randn(B, T, H, E)
        return dict(q=q, k=normalize(k, dim=-1), v=v)

    def test_delta(self):
        x = self.qkv()
        b = torch.sigmoid(torch.randn(B, T, H))
        self.compare(D.delta, delta, dict(x, b=b))
        self.compare(D.delta, delta, dict(x, b=b, S=torch.randn(B, H, N, E)))
        self.compare(D.delta, delta, dict(x, b=b, l=logsigmoid(torch.randn(B, T, H) + 2)))
        self.compare(D.delta, delta, dict(x, b=b, l=logsigmoid(torch.randn(B, T, H, N) + 2)))

    def test_diagonal_plus_rank_one(self):
        x = self.qkv()
        a = normalize(torch.randn(B, T, H, N), dim=-1)
        self.compare(D.delta, delta, dict(x, recall=a, replace=-a * torch.rand(B, T, H, 1),
                                          l=logsigmoid(torch.randn(B, T, H, N) + 2)))

    def test_moment(self):
        x = self.qkv()
        self.compare(D.moment, moment, x)
        self.compare(D.moment, moment, dict(x, l=logsigmoid(torch.randn(B, T, H) + 2),
                                            S=torch.randn(B, H, N, E)))
        self.compare(D.moment, moment, dict(x, l=logsigmoid(torch.randn(B, T, H, N) + 2),
                                            u=torch.randn(H, N)))
        positive = dict(x, q=x["q"].exp(), k=x["k"].exp())
        self.compare(D.moment, moment, positive, normalise=True, eps=1e-6)

    def test_wkv(self):
        self.compare(D.wkv, wkv, dict(k=torch.randn(B, T, 12), v=torch.randn(B, T, 12),
                                      w=-torch.rand(12) - 0.1, u=torch.randn(12)))

    def test_ema(self):
        self.compare(D.ema, ema, dict(x=torch.randn(B, T, 9), beta=torch.randn(4, 9),
                                      w=torch.randn(4, 9)))

    def test_cells(self):
        self.compare(D.gru, gru, dict(x=torch.randn(B, T, H, 3 * N), w=torch.randn(3 * N, N) / 4,
                                      b=torch.randn(3 * N), beta=torch.randn(H, N)))
        self.compare(D.lstm, lstm, dict(x=torch.randn(B, T, H, 4 * N), w=torch.randn(4 * N, N) / 4,
                                        b=torch.randn(4 * N)))

    def test_slots(self):
        l = logsigmoid(torch.randn(B, T, H, 5) + 1)
        x = dict(self.qkv(), l=l, u=1 - l.exp())
        self.compare(D.slots, slots, x)

    def test_attend(self):
        q, k = torch.randn(B, 4, T, N), torch.randn(B, 2, T, N)
        x = dict(q=q, k=k, v=torch.randn(B, 2, T, E))
        self.compare(D.attend, attend, x)
        self.compare(D.attend, attend, x, causal=True)
        self.compare(D.attend, attend, x, causal=True, window=5)
        self.compare(D.attend, attend, dict(x, bias=torch.randn(B, 4, T, T)), softcap=3.0)
        self.compare(D.attend, attend, dict(x, slopes=torch.rand(4)), causal=True)
        self.compare(D.attend, attend, dict(x, mask=torch.rand(B, 4, T, T) > 0.3))
        self.compare(D.attend, attend, dict(x, q=q[:, :, -5:]), causal=True)

    def test_marks_and_parts(self):
        x = self.qkv()
        b = torch.sigmoid(torch.randn(B, T, H))
        y, S = D.delta(**x, b=b)
        first = D.delta(*(a[:, :7] for a in x.values()), b[:, :7])
        rest = D.delta(*(a[:, 7:] for a in x.values()), b[:, 7:], S=first[1])
        self.near(torch.cat([first[0], rest[0]], 1), y, 1e-5)
        self.near(rest[1], S, 1e-5)
        mark = torch.zeros(B, T, dtype=torch.int32)
        mark[:, 7:] = 1  # pads
        padded = D.delta(**x, b=b, mark=mark)
        self.near(padded[1], first[1], 1e-5)
        self.assertEqual(float(padded[0][:, 7:].abs().max()), 0)

    def test_operators_of_torch(self):
        """Schema, fake kernels, autograd and tracing, by torch's own checks."""
        x = [a.requires_grad_() for a in self.qkv().values()]
        b = torch.sigmoid(torch.randn(B, T, H)).requires_grad_()
        torch.library.opcheck(torch.ops.dra.delta, (*x, b, *[None] * 5, 15))
        x = [a.detach().exp().requires_grad_() for a in x]
        torch.library.opcheck(torch.ops.dra.moment, (*x, *[None] * 5, 1., 0., 0., 7))
        q = torch.randn(B, H, T, N, requires_grad=True)
        torch.library.opcheck(torch.ops.dra.attend, (q, q, q, *[None] * 6, 0., 0., 7))
        m = D.Mixer(48, heads=4)
        given = [torch.randn(2, 9, 48), *m.parameters()]
        torch.library.opcheck(torch.ops.dra.module, (given, m._form.number, 0, 0, True, [1, 2]))

    def test_refused(self):
        x = self.qkv()
        b = torch.rand(B, T, H)
        self.refuses(TypeError, "float16|q", D.delta, x["q"].half(), x["k"], x["v"], b)
        self.refuses(ValueError, "delta", D.delta, x["q"], x["k"][:, :3], x["v"], b)
        with self.assertRaises(ValueError):
            D.slots(b, b, b, b, b, read="none")
        self.refuses(TypeError, "int64|mark", D.delta, **x, b=b, mark=torch.zeros(B, T).long())


@unittest.skipIf(torch is None, "no torch")
class Modules(Case):
    def in_parts(self, m, x, tolerance=2e-5):
        """Reading at once and in parts, with gradients through the states."""
        up = torch.randn_like(x)
        whole, state = m(x)
        (whole * up).sum().backward()
        expected = {n: p.grad.clone() for n, p in m.named_parameters() if p.requires_grad}
        m.zero_grad()
        s, parts = None, []
        for part in (x[:, :8], x[:, 8:9], x[:, 9:]):
            y, s = m(part, s)
            parts.append(y)
        y = torch.cat(parts, 1)
        self.near(y.detach(), whole.detach(), tolerance)
        self.assertEqual(s.tokens, x.shape[1])
        for name, a, b in zip(m.state_names, s.tensors, state.tensors):
            self.near(a.detach(), b.detach(), tolerance, name)
        (y * up).sum().backward()
        for n, p in m.named_parameters():
            if p.requires_grad:
                self.near(p.grad, expected[n], 5 * tolerance, "gradient of " + n)
        return expected

    def test_mixers(self):
        """Each memory, and ways to read it."""
        torch.manual_seed(3)
        x = torch.randn(2, 21, 48)
        for memory, more in (
                ("delta", {}), ("delta", {"decay": "data", "shift": "half"}), ("moment", {}),
                ("moment", {"phi": "identity", "decay": "fixed"}), ("ema", {"timescales": 2}),
                ("ssm", {}), ("gru", {}), ("lstm", {}), ("wkv", {"shift": "mix"}),
                ("slots", {"slots": 5, "retrieval": "slots-own"}),
                ("slots", {"slots": 3, "retrieval": "pooled"}), ("shortconv", {}),
                ("append", {}), ("append", {"retrieval": "window", "window": 6, "kv_heads": 2}),
                ("gru", {"retrieval": "time"})):
            with self.subTest(memory=memory, **more):
                m = D.Mixer(48, memory, heads=4, **more)
                found = self.in_parts(m, x)
                self.assertGreater(sum(float(g.abs().sum()) for g in found.values()), 0)
        self.refuses(ValueError, "memory|gnu", D.Mixer, 48, "gnu")
        self.refuses(ValueError, "heads", D.Mixer, 48, heads=5)
        m = D.Mixer(48)
        self.refuses(ValueError, "(B, T, 48)|47", m, x[:, :, :47])
        self.refuses(ValueError, "state", m, x, D.State((), 3))
        self.refuses(ValueError, "state S|expected (2", m, x, m.state(3))
        self.refuses(TypeError, "float64|x", m, x.double() if D.REAL_TORCH == torch.float32 else
                     x.float())

    def test_layers(self):
        torch.manual_seed(3)
        x = torch.randn(2, 21, 48)
        for preset in ("dra-delta-tiny", "dra-gru-tiny", "dra-slots-tiny", "rwkv6-tiny",
                       "retention-tiny", "dra-moment-tiny"):
            with self.subTest(preset=preset):
                m = dra.load(preset, seed=2, set={"dim": 48, "depth": 3, "heads": 3})
                layers = [D.Layer(m, i) for i in range(3)]
                self.in_parts(layers[1], x)
                ids = torch.tensor(m.tokenizer.encode("Once upon a time"))[None]
                hidden, grads = D.Model(m, hidden=True)(ids), m.parameters
                y = torch.from_numpy(grads["embedding"].copy())[ids.long()]
                for layer in layers:
                    y, _ = layer(y)
                (name,) = [n for n in grads if grads[n].shape == (48,) and "layers" not in n] \
                    if m.config.get("norm") != "layer" else [None]
                if name:
                    gain = torch.from_numpy(grads[name].copy())
                    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5) * gain
                    self.near(y.detach(), hidden.detach(), 2e-5)
                # parameters are those of the model
                own = dict(layers[2].named_parameters())["mixer.W_q"]
                with torch.no_grad():
                    own.zero_()
                self.assertEqual(float(np.abs(m.parameters["layers.2.mixer.W_q"]).max()), 0)
        layer = D.Layer({"dim": 48, "heads": 4, "mixer": {"memory": "delta"}}, seed=1)
        self.in_parts(layer, x)
        self.refuses(ValueError, "value_residual", D.Layer, dra.load("rwkv7-tiny"))
        m = dra.load("dra-delta-tiny", set={"unet": True})
        self.refuses(ValueError, "unet|alone", D.Layer, m, 0)
        self.refuses(IndexError, "0 to 3", D.Layer, dra.load("dra-delta-tiny"), 4)

    def test_models(self):
        """Logits are those of the model, gradients of their loss those of `dra grad`."""
        for preset in ("dra-delta-tiny", "gpt2-tiny", "rwkv4-tiny", "dra-slots-tiny", "hybrid-tiny",
                       "xt-decoder-tiny", "xt-modern-tiny"):
            with self.subTest(preset=preset):
                m = dra.load(preset, seed=2)
                ids = m.tokenizer.encode(TEXT)[:50]
                rows = torch.from_numpy(ids)[None]
                expected, grads = m(ids).logits, m.grad(ids)
                module = D.Model(m)
                logits = module(rows)
                self.near(logits[0].detach(), expected, 1e-5)
                loss = torch.nn.functional.cross_entropy(logits[0, :-1], rows[0, 1:].long())
                loss.backward()
                self.assertAlmostEqual(float(loss.detach()), grads.loss, 4)
                for name, p in module.named_parameters():
                    if p.requires_grad and np.abs(grads[name]).max() > 1e-6:
                        self.near(p.grad, grads[name], 5e-5, name)
                first, s = module(rows[:, :20], module.state())
                rest, s = module(rows[:, 20:], s.detach())
                self.near(torch.cat([first, rest], 1)[0].detach(), expected, 2e-5)
                with torch.no_grad():
                    next(p for n, p in module.named_parameters() if "W_v" in n).mul_(2)
                self.assertGreater(np.abs(m(ids).logits - expected).max(), 1e-3)
        self.refuses(TypeError, "int32|int64", module, rows.long())
        self.refuses(IndexError, "embedding|id", module, rows + 500)
        self.refuses(ValueError, "img", D.Model, dra.load("vit-tiny"))
        m = dra.load("gpt2-tiny", set={"context": 32})
        self.refuses(ValueError, "positions|32", D.Model(m), rows)

    def test_runs_are_kept(self):
        """A backward goes on with its forward's run, also of several that wait; where there is no
        such run any more, it computes it again. Runs go with what holds them."""
        from dra import programs
        torch.manual_seed(5)
        x, before, count = torch.randn(2, 9, 48), programs.Kept.finish, []
        self.addCleanup(setattr, programs.Kept, "finish", before)
        programs.Kept.finish = lambda *a: count.append(before(*a)) or count[-1]
        m = D.Mixer(48, heads=4)
        losses = [m(x * k)[0].square().sum() for k in (1, 2, 3)]
        plain = [torch.autograd.grad(loss, m.W_q, retain_graph=True)[0] for loss in losses]
        self.assertEqual(count, [True] * 3)
        again = [torch.autograd.grad(loss, m.W_q)[0] for loss in losses]
        self.assertEqual(count, [True] * 3 + [False] * 3)
        for a, b in zip(plain, again):
            self.near(a, b, 1e-5)
        del losses
        from dra import _torch_ops
        self.assertEqual(len(_torch_ops._runs), 0)
        with torch.no_grad():
            m(x)
        self.assertEqual(len(_torch_ops._runs), 0)

    def test_compiled(self):
        torch.manual_seed(3)
        m = D.Mixer(48, heads=4)
        x = torch.randn(2, 9, 48)
        y = m(x)[0]
        y.sum().backward()
        plain = m.W_q.grad.clone()
        m.W_q.grad = None
        again = torch.compile(m, backend="aot_eager", fullgraph=True)(x)[0]
        again.sum().backward()
        self.near(again.detach(), y.detach(), 1e-6)
        self.near(m.W_q.grad, plain, 1e-6)

    def test_whole_models(self):
        m = dra.load("dra-delta-tiny", seed=2, set=SMALL)
        ids = m.tokenizer.encode(TEXT)[:60]
        module = D.Trainable(m)
        loss = module(ids)
        loss.backward()
        grads = m.grad(ids)
        self.assertAlmostEqual(float(loss.detach()), grads.loss, 5)
        for name, p in module.named_parameters():
            self.same(p.grad.numpy(), grads[name], name)
        before, text = m.score(ids).logprob, m.generate("Once", tokens=8, temperature=0)
        step = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(3):
            step.zero_grad()
            module(ids).backward()
            step.step()
        self.assertGreater(m.score(ids).logprob, before)
        self.assertNotEqual(m.generate("Once", tokens=8, temperature=0), text)

    def test_arrays_are_shared(self):
        m = small("dra-delta-tiny")
        s = m.read("Once")
        tensor = torch.from_dlpack(s["layers.0.mixer.S"])
        tensor.zero_()
        self.assertEqual(float(np.abs(s["layers.0.mixer.S"]).max()), 0)
        ids = torch.tensor([1, 2, 3], dtype=torch.int32)
        self.same(m(ids).logits, m([1, 2, 3]).logits)
        self.refuses(TypeError, "int32|int64", m, torch.tensor([1, 2]))


if __name__ == "__main__":
    unittest.main()
