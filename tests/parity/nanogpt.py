"""Checkpoints in the form of nanoGPT's ckpt.pt, for tests/formats/test_nanogpt.c.

    nanogpt.py FOLDER

Rewrites tests/data/nanogpt. Made with torch 2.13: a GPT by the names that nanoGPT gives to its
parts, three steps of AdamW, and the dict that its trainer saves, with the optimizer in it. Prints
the logits of the last of the tokens 3, 1, 4, 1, 5, 9, 2, 6, computed in double.

    bias.pt    bias=True, names as they are
    plain.pt   bias=False, names with the _orig_mod. of torch.compile()
"""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

SIZES = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 16, "vocab_size": 13, "dropout": 0.1}


class Attention(nn.Module):
    def __init__(self, C, heads, bias):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C, bias=bias), nn.Linear(C, C, bias=bias)
        self.heads = heads

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for part in self.c_attn(x).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, C, bias):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(C, 4 * C, bias=bias), nn.Linear(4 * C, C, bias=bias)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, C, heads, bias):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(C, bias=bias), Attention(C, heads, bias)
        self.ln_2, self.mlp = nn.LayerNorm(C, bias=bias), MLP(C, bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, a):
        super().__init__()
        C, bias = a["n_embd"], a["bias"]
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(a["vocab_size"], C), "wpe": nn.Embedding(a["block_size"], C),
            "h": nn.ModuleList(Block(C, a["n_head"], bias) for _ in range(a["n_layer"])),
            "ln_f": nn.LayerNorm(C, bias=bias)})
        self.lm_head = nn.Linear(C, a["vocab_size"], bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, ids):
        t = self.transformer
        x = t.wte(ids) + t.wpe(torch.arange(ids.shape[1]))
        for block in t.h:
            x = block(x)
        return self.lm_head(t.ln_f(x))


def checkpoint(bias, prefix):
    args = SIZES | {"bias": bias}
    model = GPT(args)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
    ids = torch.randint(13, (4, 17))
    for _ in range(3):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
    last = model.double()(torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]]))[0, -1]
    print(bias, [round(x, 8) for x in last.tolist()])
    state = {prefix + name: t for name, t in model.float().state_dict().items()}
    return {"model": state, "optimizer": adam.state_dict(), "model_args": args, "iter_num": 3,
            "best_val_loss": loss.detach(), "config": {"out_dir": "out", "eval_only": False} | args}


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(0)
    torch.save(checkpoint(True, ""), f"{folder}/bias.pt")
    torch.save(checkpoint(False, "_orig_mod."), f"{folder}/plain.pt")


if __name__ == "__main__":
    main()
