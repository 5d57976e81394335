"""The fixture tests/data/golden-xl.json: the loss of Transformer-XL in several pieces and the
gradient of every parameter, by x-transformers 2.1.37 in float64.

    xl.py FILE

Parameters are those of tests/formats/xt/xt_tensors.h, by their names inside the wrapper; ids 1 5 3 9 0 7
2 4. A gradient is written as its sum of absolute values and its sum of g_t cos(t).
"""
import json
import sys

import torch

import x_models

IDS = [1, 5, 3, 9, 0, 7, 2, 4]
ROWS = [
    ({"max_seq_len": 3, "max_mem_len": 6}, {"rel_pos_bias": True}),
    ({"max_seq_len": 3, "max_mem_len": 5, "shift_mem_down": 1}, {"rel_pos_bias": True}),
    ({"max_seq_len": 2, "max_mem_len": 3}, {"rotary_pos_emb": True, "attn_qk_norm": True,
                                            "attn_qk_norm_dim_scale": True}),
    ({"max_seq_len": 3, "max_mem_len": 4, "shift_mem_down": 1}, {"pre_norm": False,
                                                                 "attn_kv_heads": 2}),
]


def base_of(name, shape):
    return torch.ones(shape) if "qk_norm" in name else torch.zeros(shape)


def fill(name, p):
    sigma = sum((c + 1) * b for c, b in enumerate(name.encode())) % 997
    t = torch.arange(p.numel(), dtype=torch.float64)
    x = 0.25 * torch.sin(sigma + 1.7 * t + 0.013 * t * t)
    return (base_of(name, p.shape) + x.reshape(p.shape)).float().double()


def run(lib, wrapper, layers):
    stack = {"dim": 16, "depth": 2, "heads": 4, "attn_dim_head": 8, **layers}
    config = {"wrapper": "TransformerWrapper", "num_tokens": 10, **wrapper,
              "attn_layers": {"type": "Decoder", **stack}}
    net = x_models.in_double(x_models.build(config))
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(fill(name, p))
    loss = lib.XLAutoregressiveWrapper(net)(torch.tensor([IDS]))
    loss.backward()
    gradients = {}
    for name, p in net.named_parameters():
        g = p.grad.flatten()
        t = torch.arange(g.numel(), dtype=torch.float64)
        gradients[name] = [g.abs().sum().item(), (g * torch.cos(t)).sum().item()]
    return {"wrapper": wrapper, "layers": layers, "loss": loss.item(), "gradients": gradients}


def main():
    torch.set_default_dtype(torch.float64)
    lib = x_models.library("E")
    about = f"made by tests/parity/xl.py with PyTorch {torch.__version__}, x-transformers 2.1.37"
    rows = [run(lib, *row) for row in ROWS]
    with open(sys.argv[1], "w") as out:
        out.write('{\n "about": "%s",\n "rows": [\n' % about)
        out.write(",\n".join("  " + json.dumps(r) for r in rows) + "\n]}\n")


main()
