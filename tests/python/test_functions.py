"""dra.functions: against a loop, central differences, and what is refused. test_torch compares all
of them with PyTorch."""
import unittest

import numpy as np

from dra import functions as F
from common import Case

B, T, H, N, E = 2, 70, 2, 5, 4


def inputs():
    rng = np.random.default_rng(4)

    def draw(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    k = draw(B, T, H, N)
    return dict(q=draw(B, T, H, N), k=k / np.linalg.norm(k, axis=-1, keepdims=True),
                v=draw(B, T, H, E), b=(1 / (1 + np.exp(-draw(B, T, H)))).astype(np.float32))


class Functions(Case):
    def test_a_loop(self):
        x = inputs()
        S, ys = np.zeros((B, H, N, E)), []
        for t in range(T):
            q, k, v, b = (x[n][:, t].astype(float) for n in "qkvb")
            miss = v - np.einsum("bhfe,bhf->bhe", S, k)
            S = S + np.einsum("bhf,bhe->bhfe", k, b[..., None] * miss)
            ys.append(np.einsum("bhfe,bhf->bhe", S, q))
        y, last = F.delta(**x)
        self.near(y, np.stack(ys, 1), 1e-5)
        self.near(last, S, 1e-5)

    def test_central_differences(self):
        x = {n: a[:, :12] for n, a in inputs().items()}
        rng = np.random.default_rng(5)
        dy = rng.standard_normal((B, 12, H, E)).astype(np.float32)
        grads = F.delta.gradient(x, {"y": dy})
        for name in x:
            way = rng.standard_normal(x[name].shape).astype(np.float32)
            ends = [float((F.delta(**dict(x, **{name: x[name] + np.float32(h) * way}))[0] *
                           dy).sum(dtype=float)) for h in (2e-3, -2e-3)]
            self.near((ends[0] - ends[1]) / 4e-3, (grads[name] * way).sum(dtype=float), 1e-2, name)

    def test_in_parts(self):
        x = inputs()
        y, S = F.delta(**x)
        a = F.delta(**{n: v[:, :33] for n, v in x.items()})
        b = F.delta(**{n: v[:, 33:] for n, v in x.items()}, S=a[1])
        self.near(np.concatenate([a[0], b[0]], 1), y, 1e-5)
        self.near(b[1], S, 1e-5)

    def test_arrays_of_any_start(self):
        """Memory that begins at any number is read where it is."""
        x = inputs()
        room = {n: np.empty(a.size + 1, np.float32) for n, a in x.items()}
        moved = {n: room[n][1:].reshape(a.shape) for n, a in x.items()}
        for n in x:
            moved[n][...] = x[n]
        self.same(F.delta(**moved)[0], F.delta(**x)[0])

    def test_refused(self):
        x = inputs()
        self.refuses(TypeError, "float32|float64", F.delta, **dict(x, q=x["q"].astype(float)))
        self.refuses(TypeError, "list", F.delta, **dict(x, q=[1.0]))
        self.refuses(ValueError, "delta", F.delta, **dict(x, k=x["k"][:, :3]))
        self.refuses(ValueError, "axes", F.delta, **dict(x, q=x["q"][None, None, None]))
        self.refuses(ValueError, "expected v", F.delta, q=x["q"], k=x["k"])
        self.refuses(ValueError, "no input w", F.delta, **dict(x, w=x["b"]))
        self.refuses(TypeError, "int32", F.delta, **dict(x, mark=np.zeros((B, T))))
        self.refuses(ValueError, "gradient of y", F.delta.gradient, x, {"y": x["v"][:1]})
        self.refuses(ValueError, "no gradient", F.delta.gradient, x, {"none": x["v"]})


if __name__ == "__main__":
    unittest.main()
