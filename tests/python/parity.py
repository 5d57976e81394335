"""The functions of dra.torch as plain loops of PyTorch, and how far the two are apart."""
import torch
from torch.nn.functional import logsigmoid, normalize, softmax

import dra.torch as D

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


# ---- what is compared ----------------------------------------------------------------------------

def cases():
    """(function, what is special, inputs in float32, options): all that is compared."""
    torch.manual_seed(7)
    rand, randn = torch.rand, torch.randn
    q, k, v = randn(B, T, H, N), normalize(randn(B, T, H, N), dim=-1), randn(B, T, H, E)
    x = dict(q=q, k=k, v=v)
    b, S = torch.sigmoid(randn(B, T, H)), randn(B, H, N, E)
    by_head, by_channel = (logsigmoid(randn(*s) + 2) for s in ((B, T, H), (B, T, H, N)))
    recall = normalize(randn(B, T, H, N), dim=-1)
    yield "delta", "", dict(x, b=b), {}
    yield "delta", "from a state", dict(x, b=b, S=S), {}
    yield "delta", "decay by head", dict(x, b=b, l=by_head), {}
    yield "delta", "decay by channel", dict(x, b=b, l=by_channel), {}
    yield "delta", "diagonal plus rank one", dict(
        x, recall=recall, replace=-recall * rand(B, T, H, 1), l=by_channel), {}
    yield "moment", "", x, {}
    yield "moment", "decay by head, from a state", dict(x, l=by_head, S=S), {}
    yield "moment", "decay by channel, bonus", dict(x, l=by_channel, u=randn(H, N)), {}
    yield "moment", "normalised", dict(x, q=q.exp(), k=k.exp()), dict(normalise=True, eps=1e-6)
    yield "wkv", "", dict(k=randn(B, T, 12), v=randn(B, T, 12), w=-rand(12) - 0.1, u=randn(12)), {}
    yield "ema", "4 timescales", dict(x=randn(B, T, 9), beta=randn(4, 9), w=randn(4, 9)), {}
    yield "gru", "", dict(x=randn(B, T, H, 3 * N), w=randn(3 * N, N) / 4, b=randn(3 * N),
                          beta=randn(H, N)), {}
    yield "lstm", "", dict(x=randn(B, T, H, 4 * N), w=randn(4 * N, N) / 4, b=randn(4 * N)), {}
    l = logsigmoid(randn(B, T, H, 5) + 1)
    yield "slots", "", dict(x, l=l, u=1 - l.exp()), {}
    q, k = randn(B, 4, T, N), randn(B, 2, T, N)
    x = dict(q=q, k=k, v=randn(B, 2, T, E))
    yield "attend", "", x, {}
    yield "attend", "causal", x, dict(causal=True)
    yield "attend", "window of 5", x, dict(causal=True, window=5)
    yield "attend", "bias, softcap", dict(x, bias=randn(B, 4, T, T)), dict(softcap=3.0)
    yield "attend", "ALiBi", dict(x, slopes=rand(4)), dict(causal=True)
    yield "attend", "mask", dict(x, mask=rand(B, 4, T, T) > 0.3), {}
    yield "attend", "the last 5 queries", dict(x, q=q[:, :, -5:]), dict(causal=True)


REFERENCES = dict(delta=delta, moment=moment, wkv=wkv, ema=ema, gru=gru, lstm=lstm, slots=slots,
                  attend=attend)


def apart(a, b):
    """The largest difference over the largest number."""
    most = float(b.abs().max())
    return float((a.cpu().double() - b).abs().max()) / (most or 1)


def compare(name, inputs, options, device="cpu"):
    """How far outputs and gradients, by their names, are from those of the reference in float64."""
    real = D.REAL_TORCH
    smooth = [n for n, x in inputs.items() if x.dtype.is_floating_point]
    mine = {n: x.to(device, real).clone().requires_grad_() if n in smooth else x.to(device)
            for n, x in inputs.items()}
    theirs = {n: mine[n].detach().cpu().double().requires_grad_() if n in smooth else x
              for n, x in inputs.items()}
    a, b = getattr(D, name)(**mine, **options), REFERENCES[name](**theirs, **options)
    a = a if isinstance(a, (tuple, list)) else (a,)
    ups = [torch.randn(y.shape).to(real) for y in b]
    sum((x.cpu() * u).sum() for x, u in zip(a, ups)).backward()
    sum((x * u.double()).sum() for x, u in zip(b, ups)).backward()
    return ({i: apart(x.detach(), y.detach()) for i, (x, y) in enumerate(zip(a, b))},
            {n: apart(mine[n].grad, theirs[n].grad) for n in smooth})


def main():
    print("| function | | outputs | gradients |\n|---|---|---|---|")
    for name, special, inputs, options in cases():
        outputs, gradients = compare(name, inputs, options)
        print("| `%s` | %s | %.1e | %.1e |" % (name, special, max(outputs.values()),
                                               max(gradients.values())))


if __name__ == "__main__":
    main()
