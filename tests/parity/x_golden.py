"""Numbers of tests/data/golden-xt.json as x-transformers computes them, for rows of bare stacks, of
wrappers of tokens without a loss, read as a whole or in segments, and of stacks with a context.

    x_golden.py '{"type": "Decoder", "stack": {"ff_glu": true}}' ...    prints each with "should"
    x_golden.py tests/data/golden-xt.json                               checks all such rows

Parameters and inputs are those of tests/formats/xt/xt_tensors.h; needs the environment of run.sh.
"""
import json
import sys

import torch
import x_models

ONES = ("head_scale_params", "residual_scale", "ff.1.gamma", "post_emb_norm.gamma", "2.norm.weight", "2.static_beta",
        "to_weights.0.g")
EYES = ("talking_heads.weight",)


def base_of(name, value):
    """What a parameter's numbers are added to: the library's first values where they matter."""
    if name.endswith(ONES):
        return torch.ones_like(value)
    if name.endswith(EYES):
        return torch.eye(value.shape[0], dtype=value.dtype).view_as(value)
    if name.endswith(("qk_norm_q_scale", "qk_norm_k_scale")):
        return value.clone()
    return torch.zeros_like(value)


def fill(stack):
    with torch.no_grad():
        for name, value in stack.named_parameters():
            sigma = sum((c + 1) * byte for c, byte in enumerate(name.encode())) % 997
            t = torch.arange(value.numel(), dtype=torch.float64)
            wave = 0.25 * torch.sin(sigma + 1.7 * t + 0.013 * t * t)
            value.copy_((base_of(name, value).double() + wave.view_as(value)).float())


IDS = [1, 5, 3, 9, 0, 7, 2, 4]


def in_segments(model, row):
    """Logits of the last of several texts of four tokens, each with memories of those before."""
    mems = None
    for k in range(row["segments"]):
        ids = torch.tensor([[IDS[(t - k) % len(IDS)] for t in range(4)]])
        logits, mems = model(ids, mems=mems, return_mems=True)
    return logits


def tokens(row):
    """Logits of a wrapper of tokens."""
    lib = x_models.library(row.get("release", "E"))
    layers = getattr(lib, row["type"])(**{"dim": 16, "depth": 2, "heads": 4, "attn_dim_head": 8,
                                          **x_models.tuples(row.get("layers", {}))})
    options = {"num_tokens": 10, "max_seq_len": 8, **row["wrapper"]}
    steps = options.pop("recycle_steps", None)
    model = lib.TransformerWrapper(**options, attn_layers=layers).eval()
    fill(model)
    mask = row.get("mask")
    more = {} if mask is None else {"mask": torch.tensor([[c == "1" for c in mask]])}
    more |= {} if steps is None else {"recycle_steps": steps}
    with torch.no_grad():
        out = in_segments(model, row) if "segments" in row else model(torch.tensor([IDS]), **more)
        return out.double().flatten()


def wave(n, phase):
    t = torch.arange(n * 16, dtype=torch.float64)
    return torch.sin(0.9 * t + 0.017 * t * t + phase).float().view(1, n, 16)


def over_context(row):
    """What a stack on 6 vectors puts out that sees 4 of 5 others."""
    model = x_models.build(row["model"]).eval()
    fill(model)
    with torch.no_grad():
        return model(wave(6, 0), context=wave(5, 0.4),
                     context_mask=torch.arange(5)[None] < 4).double().flatten()


def numbers(row):
    y = over_context(row) if "model" in row else tokens(row) if "wrapper" in row else vectors(row)
    cos = torch.cos(torch.arange(len(y), dtype=torch.float64))
    return [f"{v:.5f}" for v in (y[-2].item(), y.abs().sum().item(), (y * cos).sum().item())]


def vectors(row):
    """What a bare stack puts out."""
    lib = x_models.library(row.get("release", "E"))
    options = {"dim": 16, "depth": 2, "heads": 4, "attn_dim_head": 8,
               **x_models.tuples(row["stack"])}
    if "custom_layers" in options:
        options.pop("depth")
    conditions = options.pop("in_attn_cond", False)
    stack = getattr(lib, row["type"])(**options).eval()
    fill(stack)
    t = torch.arange(6 * 16, dtype=torch.float64)
    x = torch.sin(0.9 * t + 0.017 * t * t).float().view(1, 6, 16)
    mask = row.get("mask")
    more = {} if mask is None else {"mask": torch.tensor([[c == "1" for c in mask]])}
    if "prefix" in row:
        more["prefix_attn_len"] = row["prefix"]
    if getattr(stack, "need_condition", False):
        t = torch.arange(stack.dim_condition, dtype=torch.float64)
        more["condition"] = torch.sin(0.9 * t + 0.017 * t * t + 2).float().view(1, -1)
    if conditions:
        t = torch.arange(16, dtype=torch.float64)
        more["in_attn_cond"] = torch.sin(0.9 * t + 0.017 * t * t + 2).float().view(1, -1)
    with torch.no_grad():
        return stack(x, **more).double().flatten()


STACKS = ("Decoder", "Encoder", "CrossAttender")


def main():
    if sys.argv[1].endswith(".json"):
        with open(sys.argv[1]) as f:
            file = json.load(f)
        rows = [r for r in file["rows"]
                if ("stack" in r or "wrapper" in r)
                and not {"loss", "mems", "keys"} & set(r)
                and not r.get("stack", r.get("layers", {})).get("resi_dual")]
        rows += [r for r in file["models"] if r["model"]["wrapper"] in STACKS]
        bad = [r for r in rows
               if any(abs(float(a) - float(b)) > 1e-4 for a, b in zip(numbers(r), r["should"]))]
        for r in bad:
            print(json.dumps(r), numbers(r))
        print(f"{len(rows) - len(bad)} of {len(rows)} agree")
        sys.exit(bool(bad))
    for text in sys.argv[1:]:
        row = json.loads(text)
        print("  " + json.dumps({**row, "should": numbers(row)}) + ",")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
