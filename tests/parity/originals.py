"""The mixers in PyTorch: the modules that gru + time and gru + joint come from, the others as plain
loops over time.

RecurrentCore and LastTokenCore keep the parameters, the operations and the order of operations of
the modules they stand for, sanitising included, because they are timed as well; a causal mask is
all that was added to the first.
"""
import torch
import torch.nn as nn


def causal_mask(T, dtype=torch.float32):
    return torch.full((T, T), -torch.inf, dtype=dtype).triu(1)


class RecurrentCore(nn.Module):
    """Attention over the states of two GRU cells that are shared by all heads:
    h' = gamma h + (1 - gamma) cell(x, h), of keys and of values."""

    def __init__(self, width, heads, gamma=0.9, bound=1e4):
        super().__init__()
        self.heads, self.each, self.gamma, self.bound = heads, width // heads, gamma, bound
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(width, width) for _ in range(4))
        self.gru_k, self.gru_v = (nn.GRUCell(self.each, self.each) for _ in range(2))

    def sane(self, h):
        return torch.clamp(torch.nan_to_num(h), -self.bound, self.bound)

    def remember(self, K, V, hk, hv):
        """States after each token, (B, T, H, D) each, and the last ones, (B H, D)."""
        B, T, H, D = K.shape
        hk, hv = (self.sane(h.reshape(B * H, D)) for h in (hk, hv))
        keys, values = [], []
        for t in range(T):
            new_k = self.gru_k(K[:, t].reshape(B * H, D), hk)
            new_v = self.gru_v(V[:, t].reshape(B * H, D), hv)
            hk = self.sane(self.gamma * hk + (1.0 - self.gamma) * new_k)
            hv = self.sane(self.gamma * hv + (1.0 - self.gamma) * new_v)
            keys.append(hk.view(B, H, D))
            values.append(hv.view(B, H, D))
        return torch.stack(keys, dim=1), torch.stack(values, dim=1), hk, hv

    def retrieve(self, Q, keys, values, mask):
        scores = torch.einsum("bqhd,bkhd->bhqk", Q, keys) / (self.each ** 0.5)
        scores = torch.nan_to_num(scores) + mask
        unseen = ~torch.isfinite(torch.amax(scores, dim=-1, keepdim=True))
        if unseen.any():
            scores = torch.where(unseen, torch.zeros_like(scores), scores)
        scores = torch.nan_to_num(scores - torch.amax(scores, dim=-1, keepdim=True))
        weights = torch.nan_to_num(torch.softmax(scores, dim=-1), nan=0.0)
        return torch.einsum("bhqk,bkhd->bqhd", weights, values)

    def forward(self, x, hk, hv, mask):
        """x (B, T, C), hk and hv (B, H, D), mask (T, T) of 0 and -inf; y and the last states."""
        B, T, C = x.shape
        heads = (B, T, self.heads, self.each)
        Q, K, V = (W(x).view(heads) for W in (self.W_q, self.W_k, self.W_v))
        keys, values, hk, hv = self.remember(K, V, hk, hv)
        y = self.W_o(self.retrieve(Q, keys, values, mask).reshape(B, T, C))
        return y, hk.view(B, self.heads, self.each), hv.view(B, self.heads, self.each)


class LastTokenCore(nn.Module):
    """Attention over raw keys and values and one more item: the states of two GRU cells, which a
    call feeds its last token. One head; the states stay from call to call."""

    def __init__(self, width, decay=0.97):
        super().__init__()
        self.decay, self.state = decay, [None, None]
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.cell = nn.ModuleList(nn.GRUCell(width, width) for _ in range(2))

    def remember(self, i, x):
        h = self.state[i]
        self.state[i] = self.decay * h + (1 - self.decay) * self.cell[i](x, h)
        return self.state[i].unsqueeze(1)

    def call(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        k = torch.cat([k, self.remember(0, k[:, -1])], dim=1)
        v = torch.cat([v, self.remember(1, v[:, -1])], dim=1)
        weights = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / x.shape[-1] ** 0.5, dim=-1)
        return self.out(torch.matmul(weights, v))

    def forward(self, x, hk, hv):
        """Called on x_0..t for every t; y_t is the last row of each call. hk, hv (B, C)."""
        self.state = [hk, hv]
        y = torch.stack([self.call(x[:, :t + 1])[:, -1] for t in range(x.shape[1])], dim=1)
        return y, *self.state


# ---- streams of items as loops: k, v (B, T, H, D) -----------------------------------------------

def ema(x, m, beta, mix=None):
    """Running means m (B, H, M, D) with decays sigmoid(beta), beta (H, M); items and last means."""
    gamma, items = torch.sigmoid(beta)[..., None], []
    w = torch.softmax(mix, dim=-1)[..., None] if mix is not None else 1
    for t in range(x.shape[1]):
        m = gamma * m + (1 - gamma) * x[:, t, :, None]
        items.append((w * m).sum(2))
    return torch.stack(items, dim=1), m


def wkv(k, v, w, u, A, B, p):
    """RWKV-4: k, v (B, T, C), decay w < 0, bonus u; sums A, B kept divided by e^p."""
    y = []
    for t in range(k.shape[1]):
        k_t, v_t = k[:, t], v[:, t]
        top = torch.maximum(p, u + k_t).detach()  # the result does not depend on it
        a, b = torch.exp(p - top), torch.exp(u + k_t - top)
        y.append((a * A + b * v_t) / (a * B + b))
        top = torch.maximum(p + w, k_t).detach()
        a, b = torch.exp(p + w - top), torch.exp(k_t - top)
        A, B, p = a * A + b * v_t, a * B + b, top
    return torch.stack(y, dim=1), A, B, p


def causal(q, k, v):
    """Softmax over items up to the query's own, (B, T, H, D) each."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    weights = torch.softmax(scores + causal_mask(q.shape[1], q.dtype), dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)
