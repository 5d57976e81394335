"""Checkpoints of PyTorch for tests/file/test_pth.c and tests/formats/test_pth.c.

    pth.py FOLDER

Rewrites tests/data/pth. The models are those of tests/model/fixtures.h: element i of tensor
number n is made of s = sin(1.7 n + 0.9 i + 0.05 i i).
"""

import collections
import json
import math
import os
import sys
import zipfile

import torch


class Evil:
    """What a pickle can do to a reader that does what it says."""

    def __reduce__(self):
        return os.system, ("echo this must never be printed",)


def plain():
    """A tensor of each dtype, a scalar, nothing."""
    numbers = torch.tensor([[0.5, -1.0, 2.0], [3.0, 4.0, -5.5]])
    kinds = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32,
             torch.int16, torch.int8, torch.uint8, torch.bool]
    made = {str(kind).split(".")[1]: numbers.abs().to(kind) for kind in kinds}
    made |= {"scalar": torch.tensor(7.25), "nothing": torch.zeros(0, 3), "n\u00e4me": numbers}
    return made


def views():
    """Tensors that share a storage, as they are and transposed."""
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return {"whole": whole, "tied": whole, "rows": whole[1:3], "turned": whole.t(),
            "cut": whole[:, 1:4], "steps": whole[::2, ::3],
            "axes": torch.arange(24, dtype=torch.float16).reshape(2, 3, 4).permute(2, 0, 1)}


def state_dict():
    """An OrderedDict with the attribute _metadata."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    with torch.no_grad():
        for n, p in enumerate(model.parameters()):
            p.copy_(torch.arange(p.numel()).reshape(p.shape) + 10.0 * n)
    return model.state_dict()


def tensors(rows, prefix=""):
    made = collections.OrderedDict()
    for n, (name, kind, *shape) in enumerate(rows, 1):
        scale, base = {"matrix": (0.5, 0), "gain": (0.2, 1), "bias": (0.1, 0), "mix": (0.4, 0.5),
                       "decay": (1, -1)}[kind]
        count = math.prod(shape)
        numbers = [base + scale * math.sin(1.7 * n + 0.9 * i + 0.05 * i * i) for i in range(count)]
        made[prefix + name] = torch.tensor(numbers, dtype=torch.float64).float().reshape(shape)
    return made


def gpt2():
    rows = [("wte.weight", "matrix", 13, 8), ("wpe.weight", "matrix", 16, 8)]
    for l in range(2):
        rows += [(f"h.{l}.{name}", *rest) for name, *rest in [
            ("ln_1.weight", "gain", 8), ("ln_1.bias", "bias", 8),
            ("attn.c_attn.weight", "matrix", 8, 24), ("attn.c_attn.bias", "bias", 24),
            ("attn.c_proj.weight", "matrix", 8, 8), ("attn.c_proj.bias", "bias", 8),
            ("ln_2.weight", "gain", 8), ("ln_2.bias", "bias", 8),
            ("mlp.c_fc.weight", "matrix", 8, 32), ("mlp.c_fc.bias", "bias", 32),
            ("mlp.c_proj.weight", "matrix", 32, 8), ("mlp.c_proj.bias", "bias", 8)]]
    rows += [("ln_f.weight", "gain", 8), ("ln_f.bias", "bias", 8)]
    made = tensors(rows, "transformer.")
    made["lm_head.weight"] = made["transformer.wte.weight"]
    return made


def rwkv():
    """By the names of the original checkpoints."""
    rows = [("emb.weight", "matrix", 13, 8)]
    for l in range(2):
        if l == 0:
            rows += [("blocks.0.ln0.weight", "gain", 8), ("blocks.0.ln0.bias", "bias", 8)]
        rows += [(f"blocks.{l}.{name}", *rest) for name, *rest in [
            ("ln1.weight", "gain", 8), ("ln1.bias", "bias", 8),
            ("ln2.weight", "gain", 8), ("ln2.bias", "bias", 8),
            ("att.time_decay", "decay", 8), ("att.time_first", "matrix", 8),
            ("att.time_mix_k", "mix", 1, 1, 8), ("att.time_mix_v", "mix", 1, 1, 8),
            ("att.time_mix_r", "mix", 1, 1, 8), ("att.key.weight", "matrix", 8, 8),
            ("att.value.weight", "matrix", 8, 8), ("att.receptance.weight", "matrix", 8, 8),
            ("att.output.weight", "matrix", 8, 8), ("ffn.time_mix_k", "mix", 1, 1, 8),
            ("ffn.time_mix_r", "mix", 1, 1, 8), ("ffn.key.weight", "matrix", 12, 8),
            ("ffn.receptance.weight", "matrix", 8, 8), ("ffn.value.weight", "matrix", 8, 12)]]
    rows += [("ln_out.weight", "gain", 8), ("ln_out.bias", "bias", 8), ("head.weight", "matrix", 13, 8)]
    return {name: t.bfloat16() for name, t in tensors(rows).items()}


def save_shards(folder, made):
    shards = ["gpt2-00001-of-00002.bin", "gpt2-00002-of-00002.bin"]
    place = {name: shards[2 * i >= len(made)] for i, name in enumerate(made)}
    place["lm_head.weight"] = place["transformer.wte.weight"]
    for shard in shards:
        torch.save({n: t for n, t in made.items() if place[n] == shard}, f"{folder}/{shard}")
    size = sum(t.numel() * 4 for t in made.values())
    with open(f"{folder}/gpt2.bin.index.json", "w") as f:
        json.dump({"metadata": {"total_size": size}, "weight_map": place}, f, indent=1)


def pack(folder):
    """plain.pth once more, its entries compressed."""
    with zipfile.ZipFile(f"{folder}/plain.pth") as old, \
            zipfile.ZipFile(f"{folder}/packed.pth", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(zipfile.ZipInfo(name), old.read(name), zipfile.ZIP_DEFLATED)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    one = torch.ones(2)
    for name, made in {
        "plain": plain(),
        "views": views(),
        "module": state_dict(),
        "parameters": {"w": torch.nn.Parameter(one), "frozen": torch.nn.Parameter(one, False)},
        "expanded": {"w": torch.ones(1).expand(1000, 1000)},
        "nested": {"model": {"w": one}, "step": 3},
        "list": [one],
        "evil": {"w": one, "x": Evil()},
        "rwkv": rwkv(),
    }.items():
        torch.save(made, f"{folder}/{name}.pth")
    old = {"_use_new_zipfile_serialization": False}
    torch.save(views(), f"{folder}/old-views.pth", **old)
    torch.save(gpt2(), f"{folder}/old-gpt2.bin", **old)
    torch.save({"w": one}, f"{folder}/protocol.pth", pickle_protocol=4)
    save_shards(folder, gpt2())
    pack(folder)


if __name__ == "__main__":
    main()
