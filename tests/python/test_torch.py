"""dra.torch against plain loops of PyTorch in float64, gradients too."""
import unittest

import numpy as np

import dra
from common import SMALL, TEXT, Case, small

try:
    import torch
    from torch.nn.functional import normalize
    import dra.torch as D
    import parity
except ImportError:
    torch = None

B, T, H, N, E = 2, 19, 3, 8, 6


def setUpModule():
    if torch is not None:  # the tests are the same for a library that computes in float64
        unittest.addModuleCleanup(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(D.REAL_TORCH)


@unittest.skipIf(torch is None, "no torch")
class Functions(Case):
    def setUp(self):
        torch.manual_seed(7)

    def qkv(self):
        q, k, v = (torch.randn(B, T, H, n).to(D.REAL_TORCH) for n in (N, N, E))
        return dict(q=q, k=normalize(k, dim=-1), v=v)

    def test_against_plain_loops(self):
        tight = 1e-5 if D.REAL_TORCH == torch.float32 else 1e-12
        for name, special, inputs, options in parity.cases():
            with self.subTest(function=name, special=special):
                outputs, gradients = parity.compare(name, inputs, options)
                self.assertLess(max(outputs.values()), tight)
                self.assertLess(max(gradients.values()), 5 * tight, gradients)

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

    @unittest.skipIf(torch is None or D.REAL_TORCH == torch.float32,
                     "differences want a library that computes in float64")
    def test_gradients_by_differences(self):
        torch.manual_seed(3)
        x = torch.randn(1, 5, 12, requires_grad=True)
        for memory in ("delta", "moment", "ema", "ssm", "gru", "lstm", "slots", "shortconv",
                       "append"):
            with self.subTest(memory=memory):
                m = D.Mixer(12, memory, heads=2)
                self.assertTrue(torch.autograd.gradcheck(lambda x: m(x)[0], x, atol=1e-7))
                S = m(x.detach())[1].detach()
                S = [t.requires_grad_() for t in S.tensors]
                self.assertTrue(torch.autograd.gradcheck(
                    lambda *S: m(x, D.State(S, 5))[0], S, atol=1e-7))

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
