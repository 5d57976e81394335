"""Delta nets of flash-linear-attention: folders of random tiny models against plain loops in torch.

    fla_models.py DRA [DRA_DOUBLE [COUNT]]
    fla_models.py fixtures FOLDER                what tests/formats/test_llama.c reads

The library itself runs on GPUs alone. Its naive functions, where they are installed, check the loops
here; the layers around them follow its modules. Prints the largest differences, exits with 1 when one
is over its bar.
"""

import importlib.util
import json
import os
import random
import sys
import tempfile

try:
    import torch
    from safetensors.torch import save_file
    from side import Side
except ImportError as missing:
    print(f"fla    skipped: {missing}")
    sys.exit(0)

import torch.nn.functional as F

FAMILIES = ("gated_deltanet", "delta_net")
BARS = {"float ": 2e-3, "double": 1e-10}  # as of other delta rules in llama_models.py


def naive(family):
    """The library's own loop, whatever else of it can be imported; None: it is not there."""
    found = importlib.util.find_spec("fla")
    if not found:
        return None
    folder = "gated_delta_rule" if family == "gated_deltanet" else "delta_rule"
    path = os.path.join(list(found.submodule_search_locations)[0], "ops", folder, "naive.py")
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("naive", path))
    try:
        module.__spec__.loader.exec_module(module)
    except ImportError:
        return None
    return (module.naive_recurrent_gated_delta_rule if family == "gated_deltanet"
            else module.delta_rule_recurrence)


def config(family, rng):
    c = dict(model_type=family, vocab_size=rng.randint(11, 60), num_hidden_layers=rng.randint(1, 4),
             hidden_size=rng.choice([12, 24]), intermediate_size=rng.randint(9, 30), conv_size=rng.choice([2, 4]),
             norm_eps=rng.choice([1e-6, 1e-3]), tie_word_embeddings=False, allow_neg_eigval=rng.random() < 0.5,
             use_gate=rng.random() < 0.7, max_position_embeddings=128)
    if family == "delta_net":
        return c | dict(num_heads=rng.choice([1, 2, 3]), expand_k=rng.choice([0.5, 1.0]), expand_v=rng.choice([1.0, 2.0]))
    heads = rng.choice([1, 2])
    return c | dict(num_heads=heads, num_v_heads=heads * rng.choice([1, 2, 3]), head_dim=rng.choice([4, 6]),
                    expand_v=rng.choice([1.0, 1.5, 2.0]))


def sizes(c):
    """Heads of keys and values, their widths."""
    if c["model_type"] == "delta_net":
        heads = c["num_heads"]
        return heads, heads, round(c["hidden_size"] * c["expand_k"]) // heads, \
            round(c["hidden_size"] * c["expand_v"]) // heads
    return c["num_heads"], c["num_v_heads"], c["head_dim"], int(c["head_dim"] * c["expand_v"])


def draw(c, seed):
    """Every tensor of a folder, by its name."""
    g = torch.Generator().manual_seed(seed)
    dim, inner, width = c["hidden_size"], c["intermediate_size"], c["conv_size"]
    keys, values, D, E = sizes(c)
    shapes = {"embeddings.weight": (c["vocab_size"], dim), "norm.weight": (dim,)}
    for l in range(c["num_hidden_layers"]):
        own = {"attn_norm.weight": (dim,), "mlp_norm.weight": (dim,), "attn.q_proj.weight": (keys * D, dim),
               "attn.k_proj.weight": (keys * D, dim), "attn.v_proj.weight": (values * E, dim),
               "attn.b_proj.weight": (values, dim), "attn.o_proj.weight": (dim, values * E), "attn.o_norm.weight": (E,),
               "attn.q_conv1d.weight": (keys * D, 1, width), "attn.k_conv1d.weight": (keys * D, 1, width),
               "attn.v_conv1d.weight": (values * E, 1, width), "mlp.gate_proj.weight": (inner, dim),
               "mlp.up_proj.weight": (inner, dim), "mlp.down_proj.weight": (dim, inner)}
        if c["model_type"] == "gated_deltanet":
            own |= {"attn.a_proj.weight": (values, dim), "attn.A_log": (values,), "attn.dt_bias": (values,)}
        if c["use_gate"]:
            own["attn.g_proj.weight"] = (values * E, dim)
        shapes |= {f"layers.{l}.{name}": shape for name, shape in own.items()}
    tensors = {f"model.{name}": (1.0 if "norm" in name else 0.0) + 0.3 * torch.randn(shape, generator=g)
               for name, shape in shapes.items()}
    return tensors | {"lm_head.weight": 0.3 * torch.randn(c["vocab_size"], dim, generator=g)}


def rms(x, gain, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain


def convolve(x, w):
    """silu of the last W tokens, each channel by itself."""
    padded = F.pad(x.transpose(1, 2), (w.shape[-1] - 1, 0))
    return F.silu(F.conv1d(padded, w, groups=w.shape[0]).transpose(1, 2))


def loop(q, k, v, beta, decay):
    """Delta rule, token by token; q and k of length 1, (B, T, H, width)."""
    S = torch.zeros(*q.shape[:1], *q.shape[2:], v.shape[-1], dtype=q.dtype)
    out = []
    for t in range(q.shape[1]):
        S = S * decay[:, t].exp()[..., None, None]
        new = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhd,bhde->bhe", k[:, t], S))
        S = S + torch.einsum("bhd,bhe->bhde", k[:, t], new)
        out.append(torch.einsum("bhd,bhde->bhe", q[:, t], S))
    return torch.stack(out, 1) / q.shape[-1] ** 0.5


def mixer(c, w, x, rule):
    keys, values, D, E = sizes(c)
    B, T = x.shape[:2]
    q, k, v = (convolve(x @ w[f"{n}_proj.weight"].T, w[f"{n}_conv1d.weight"]) for n in "qkv")
    q, k = (y.view(B, T, keys, D) for y in (q, k))
    q, k = (y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6) for y in (q, k))
    q, k = (y.repeat_interleave(values // keys, 2) for y in (q, k))
    beta = torch.sigmoid(x @ w["b_proj.weight"].T) * (2 if c["allow_neg_eigval"] else 1)
    decay = torch.zeros_like(beta)
    if "A_log" in w:
        decay = -w["A_log"].exp() * F.softplus(x @ w["a_proj.weight"].T + w["dt_bias"])
    y = rms(rule(q, k, v.view(B, T, values, E), beta, decay), w["o_norm.weight"], c["norm_eps"])
    y = y.reshape(B, T, -1)
    if c["use_gate"]:
        y = y * F.silu(x @ w["g_proj.weight"].T)
    return y @ w["o_proj.weight"].T


def logits_of(c, tensors, ids, rule=loop):
    x = tensors["model.embeddings.weight"][ids]
    for l in range(c["num_hidden_layers"]):
        w = {n.removeprefix(f"model.layers.{l}."): t for n, t in tensors.items() if f".layers.{l}." in n}
        own = {n.removeprefix("attn."): t for n, t in w.items() if n.startswith("attn.")}
        x = x + mixer(c, own, rms(x, w["attn_norm.weight"], c["norm_eps"]), rule)
        u = rms(x, w["mlp_norm.weight"], c["norm_eps"])
        x = x + (F.silu(u @ w["mlp.gate_proj.weight"].T) * (u @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    return rms(x, tensors["model.norm.weight"], c["norm_eps"]) @ tensors["lm_head.weight"].T


def learn(c, tensors, ids):
    """Loss, and the gradient of every tensor."""
    own = {n: t.clone().requires_grad_() for n, t in tensors.items()}
    logits = logits_of(c, own, ids)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    return loss.detach(), {n: t.grad for n, t in own.items()}


def write(folder, c, tensors):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump(c, f, indent=2)
        f.write("\n")
    save_file(tensors, f"{folder}/model.safetensors", {"format": "pt"})


def difference(a, b):
    return ((a.double() - b.double()).abs().max() / b.double().abs().max()).item()


def theirs(family, q, k, v, beta, decay):
    """The library's loop as one of ours."""
    call = naive(family)
    if family == "gated_deltanet":
        return call(q, k, v, beta, decay)[0]
    return call(*(t.transpose(1, 2) for t in (q, k, v, beta)))[0].transpose(1, 2)


def run(family, dra, kind, count):
    worst = {"logits": 0.0, "parts": 0.0, "gradients": 0.0, "written": 0.0, "their loop": 0.0}
    for i in range(count):
        rng = random.Random(f"{family} {i}")
        c = config(family, rng)
        tensors = draw(c, i)
        ids = torch.randint(0, c["vocab_size"], (2, rng.choice([9, 33, 64, 65, 70])),
                            generator=torch.Generator().manual_seed(i))
        double = {n: t.double() for n, t in tensors.items()}
        want = logits_of(c, double, ids)
        with tempfile.TemporaryDirectory() as work:
            write(f"{work}/model", c, tensors)
            side = Side(dra, f"{work}/model", work)
            worst["logits"] = max(worst["logits"], difference(side.forward(ids)["logits"], want))
            parts = side.forward(ids, "--chunks", str(rng.randint(1, 8)))["logits"]
            worst["parts"] = max(worst["parts"], difference(parts, want))
            found, grads = side.gradients(ids), learn(c, double, ids)[1]
            most = max(g.abs().max() for g in grads.values())
            worst["gradients"] = max(worst["gradients"], max(
                ((found[n] - g).abs().max() / max(g.abs().max(), 0.1 * most)).item() for n, g in grads.items()))
            side.call("convert", "--from", side.folder, "--to", f"{work}/own", "--check", "--threads", "1")
            side.call("convert", "--from", f"{work}/own", "--to", f"{work}/back", "--as", family, "--threads", "1")
            again = Side(dra, f"{work}/back", work).forward(ids)["logits"]
            worst["written"] = max(worst["written"], difference(again, want))
        if naive(family):
            own = logits_of(c, tensors, ids, lambda *x: theirs(family, *x))
            worst["their loop"] = max(worst["their loop"], difference(own, want) if kind == "float " else 0.0)
    for what, number in worst.items():
        print(f"fla    {family:14} {kind} {what:10} {number:9.2e}  of at most {BARS[kind]:g}")
    return max(worst.values()) <= BARS[kind]


def fixtures(folder):
    """The first model of each that tells much: heads of keys are shared, widths differ, two layers."""
    for family in FAMILIES:
        i = 0
        while True:
            rng = random.Random(f"{family} {i}")
            c = config(family, rng)
            keys, values, D, E = sizes(c)
            if D != E and c["conv_size"] == 4 and c["num_hidden_layers"] == 2 and c["hidden_size"] == 12 and \
                    c["use_gate"] == (family == "gated_deltanet") and (keys < values or family == "delta_net" and keys > 1):
                break
            i += 1
        tensors = draw(c, i)
        write(f"{folder}/{family}", c, tensors)
        ids = torch.randint(0, c["vocab_size"], (1, 20), generator=torch.Generator().manual_seed(i))
        double = {n: t.double() for n, t in tensors.items()}
        loss, grads = learn(c, double, ids)
        text = ids[:, :5]
        for _ in range(12):
            text = torch.cat([text, logits_of(c, double, text)[:, -1].argmax(-1, keepdim=True)], 1)
        save_file({"ids": ids.to(torch.int32), "logits": logits_of(c, double, ids), "loss": loss,
                   "greedy": text.to(torch.int32),
                   "norms": torch.stack([grads[n].norm() for n in sorted(grads)])},
                  f"{folder}/{family}/expected.safetensors")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "fixtures":
        fixtures(sys.argv[2])
        return
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    good = [run(family, dra, kind, count)
            for dra, kind in zip(sys.argv[1:3], ("float ", "double")) for family in FAMILIES]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
