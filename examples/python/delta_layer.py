"""A delta memory as a layer of a PyTorch model: it learns to recall what a key was paired with.

    python delta_layer.py

The layer stands where attention would. Its state has a fixed size and is returned, so a text may be
read in parts of any length.
"""
import torch
from torch import nn

import dra.torch

KEYS, VALUES, PAIRS = 16, 16, 4


class Recall(nn.Module):
    """Embedding, two blocks of a short convolution and a memory, and a head."""

    def __init__(self, dim=48):
        super().__init__()
        self.table = nn.Embedding(KEYS + VALUES, dim)
        self.shift = nn.ModuleList([nn.Linear(2 * dim, dim) for _ in range(2)])
        self.mix = nn.ModuleList([dra.torch.Mixer(dim, memory="delta", heads=2) for _ in range(2)])
        self.norm = nn.ModuleList([nn.LayerNorm(dim) for _ in range(2)])
        self.head = nn.Linear(dim, VALUES)

    def forward(self, ids, state=None):
        x = self.table(ids)
        before, memories = state or (torch.zeros(2, len(x), 1, x.shape[-1]), [None, None])
        last, out = [], []
        for shift, mix, norm, past, memory in zip(self.shift, self.mix, self.norm, before,
                                                  memories):
            h = norm(x)
            joined = torch.cat([h, torch.cat([past, h[:, :-1]], 1)], -1)
            y, memory = mix(shift(joined), memory)
            x = x + y
            last.append(h[:, -1:])
            out.append(memory)
        return self.head(x), (torch.stack(last), out)


def batch(n, rng):
    """Rows "k v k v ... k", and the value that was paired with the last key."""
    keys = torch.stack([torch.randperm(KEYS, generator=rng)[:PAIRS] for _ in range(n)])
    values = torch.randint(VALUES, (n, PAIRS), generator=rng)
    asked = torch.randint(PAIRS, (n, 1), generator=rng)
    told = torch.stack([keys, values + KEYS], 2).flatten(1)
    return torch.cat([told, keys.gather(1, asked)], 1), values.gather(1, asked)[:, 0]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # small products: more threads only wait
    rng = torch.Generator().manual_seed(0)
    model = Recall()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(200):
        ids, answer = batch(32, rng)
        loss = nn.functional.cross_entropy(model(ids)[0][:, -1], answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == 199:
            print("step %d, loss %.3f" % (step, loss.item()))

    ids, answer = batch(256, rng)
    with torch.no_grad():
        whole = model(ids)[0][:, -1]
        share = (whole.argmax(1) == answer).float().mean()
        _, state = model(ids[:, :5])
        parts = model(ids[:, 5:], state)[0][:, -1]
    print("recalled %.0f %%, by chance %.0f %%" % (100 * share, 100 / VALUES))
    print("read in two parts: differs by %.1e" % (parts - whole).abs().max())
    assert share > 0.3 and torch.allclose(parts, whole, atol=1e-4)


if __name__ == "__main__":
    main()
