"""The Llama family and its hybrids against Hugging Face: folders of random tiny models, written by either side.

    llama_models.py DRA [DRA_DOUBLE [COUNT [FAMILY...]]]
    llama_models.py fixtures FOLDER [FAMILY...]   what tests/formats/test_llama.c reads
    llama_models.py caches FOLDER FAMILY...       what tests/formats/test_recurrent.c reads besides

For COUNT configs of each family (20, seeded): logits, loss, the gradient of every parameter, whole
against parts, greedy tokens; folders that `dra` writes load strictly with from_pretrained and give the
same tensors; GGUF files that `dra` writes give the same logits, also where transformers reads them. With the double build everything is
compared once more in float64, with a copy of the library's modules in which casts to float32 are casts
to float64. Prints the largest differences, exits with 1 when one is over its bar.
"""

import importlib
import json
import random
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from side import Side
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as missing:
    print(f"llama  skipped: {missing}")
    sys.exit(0)

try:  # with them transformers reads GGUF
    import accelerate  # noqa: F401
    import gguf  # noqa: F401
    reads_gguf = True
except ImportError:
    reads_gguf = False

BARS = {  # float, double
    "logits": (2e-5, 1e-10),
    "parts": (2e-5, 1e-10),
    "loss": (2e-5, 1e-10),
    "gradients": (2e-5, 1e-10),
    "greedy tokens": (0, 0),
    "written": (0, 0),
    "logits of written": (2e-5, 1e-10),
    "logits of GGUF": (2e-5, 1e-5),
    "GGUF, theirs": (2e-5, 0),
}
HYBRIDS = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid", "mamba2", "granitemoehybrid", "lfm2"}
GGUF = {"llama", "qwen2", "qwen3", "qwen3_moe", "smollm3", "mistral", "granite", "olmo2", "olmo3", "gemma3_text", "phi3",
        "qwen3_5_text", "mamba2", "granitemoehybrid", "lfm2"}


def bar(family, what, column):
    """Keys of length 1 and norms of heads amplify what is rounded in float: transformers' own float is
    as far from its float64."""
    return BARS[what][column] * (100 if family in HYBRIDS - {"lfm2"} and not column else 1)


# ---- random configs -----------------------------------------------------------------------------

def rope(rng, length):
    kind = rng.choice(["default", "default", "linear", "llama3", "llama3", "yarn", "yarn", "dynamic"])
    r = {"rope_type": kind, "rope_theta": rng.choice([100.0, 10000.0, 500000.0])}
    if kind != "default":
        r["factor"] = rng.choice([2.0, 4.0, 8.5])
    if kind == "llama3":
        r |= {"low_freq_factor": 1.0, "high_freq_factor": rng.choice([2.0, 4.0]),
              "original_max_position_embeddings": rng.choice([8, 32])}
    if kind == "yarn":
        r["original_max_position_embeddings"] = rng.choice([8, 32])
        r |= rng.choice([{}, {"attention_factor": 0.8}, {"mscale": 1.3, "mscale_all_dim": 0.7},
                         {"beta_fast": 4.0, "beta_slow": 0.5}, {"truncate": False}])
    return r


def common(rng):
    heads = rng.choice([1, 2, 4, 6])
    width = heads * rng.choice([w for w in (4, 8, 12, 16) if w * heads >= 16])
    return dict(
        vocab_size=rng.randint(11, 90), hidden_size=width, intermediate_size=rng.randint(9, 40),
        num_hidden_layers=rng.randint(1, 5), num_attention_heads=heads,
        num_key_value_heads=rng.choice([k for k in (1, 2, 3, 4, 6) if heads % k == 0]),
        max_position_embeddings=64, rms_norm_eps=rng.choice([1e-5, 1e-6, 1e-3]),
        tie_word_embeddings=rng.random() < 0.5, initializer_range=0.2,
        rope_parameters=rope(rng, 64), bos_token_id=0, eos_token_id=None, pad_token_id=None)


def llama(rng):
    c = common(rng)
    return c | dict(attention_bias=rng.random() < 0.4, mlp_bias=rng.random() < 0.4,
                    head_dim=rng.choice([None, 6, 16]))


def windows(rng, c):
    if rng.random() < 0.5:
        return dict(use_sliding_window=False)
    own = [rng.choice(["full_attention", "sliding_attention"]) for _ in range(c["num_hidden_layers"])]
    return dict(use_sliding_window=True, sliding_window=rng.choice([1, 3, 5])) | rng.choice(
        [{"max_window_layers": rng.randint(0, 3)}, {"layer_types": own}])


def qwen2(rng):
    c = common(rng)
    return c | windows(rng, c)


def qwen3(rng):
    return qwen2(rng) | dict(attention_bias=rng.random() < 0.4, head_dim=rng.choice([6, 8, 16]))


def mistral(rng):
    return common(rng) | dict(sliding_window=rng.choice([None, 1, 4, 50]),
                              head_dim=rng.choice([None, 6, 16]))


def smollm3(rng):
    c = common(rng)
    n = c["num_hidden_layers"]
    c |= rng.choice([{}, {"no_rope_layer_interval": 2},
                     {"no_rope_layers": [rng.choice([0, 1]) for _ in range(n)]}])
    if rng.random() < 0.4:
        c |= dict(use_sliding_window=True, sliding_window=3)
    return c | dict(attention_bias=rng.random() < 0.4, mlp_bias=rng.random() < 0.4)


def granite(rng):
    return common(rng) | dict(
        attention_bias=rng.random() < 0.4, mlp_bias=rng.random() < 0.4,
        embedding_multiplier=rng.choice([1.0, 12.0, 3.7]), logits_scaling=rng.choice([1.0, 8.0, 3.3]),
        residual_multiplier=rng.choice([1.0, 0.22]), attention_multiplier=rng.choice([1.0, 0.3]))


def olmo2(rng):
    return common(rng) | dict(attention_bias=rng.random() < 0.4)


def both_ropes(rng, c, local):
    del c["rope_parameters"]
    plain = {"rope_type": "default", "rope_theta": local}
    return c | dict(rope_parameters={"full_attention": rope(rng, 64), "sliding_attention": plain})


def olmo3(rng):
    c = olmo2(rng) | dict(sliding_window=rng.choice([1, 3, 50]))
    return both_ropes(rng, c, 500000.0)


def gemma3_text(rng):
    c = common(rng) | dict(
        head_dim=rng.choice([6, 8, 16]), sliding_window=rng.choice([1, 3, 50]),
        query_pre_attn_scalar=rng.choice([16, 256, 24]), attention_bias=rng.random() < 0.4)
    n = c["num_hidden_layers"]
    c["layer_types"] = ["sliding_attention" if (l + 1) % 3 else "full_attention" for l in range(n)]
    return both_ropes(rng, c, rng.choice([100.0, 10000.0]))


def linear(rng, c):
    """Layers of gated DeltaNet among those of attention."""
    keys = rng.choice([1, 2, 3])
    while c["rope_parameters"]["rope_type"] == "dynamic":  # transformers divides by the width less 2
        c["rope_parameters"] = rope(rng, 64)
    n = c["num_hidden_layers"] = max(2, c["num_hidden_layers"])
    kinds = [rng.choice(["linear_attention", "linear_attention", "full_attention"]) for _ in range(n)]
    kinds[0], kinds[-1] = rng.choice([("linear_attention", "full_attention"),
                                      ("full_attention", "linear_attention")])
    return c | dict(
        layer_types=kinds, linear_num_key_heads=keys, attention_bias=False,
        linear_num_value_heads=keys * rng.choice([1, 2, 3]), linear_key_head_dim=rng.choice([4, 6, 8]),
        linear_value_head_dim=rng.choice([4, 5, 8]), linear_conv_kernel_dim=rng.choice([2, 4, 4]))


def experts(rng, shared):
    n = rng.randint(2, 9)
    c = dict(num_experts=n, num_experts_per_tok=rng.randint(1, min(n, 4)),
             moe_intermediate_size=rng.randint(5, 20))
    return c | (dict(shared_expert_intermediate_size=rng.randint(5, 20)) if shared else {})


def qwen3_moe(rng):
    return qwen3(rng) | experts(rng, False) | dict(norm_topk_prob=rng.random() < 0.5)


def qwen3_next(rng):
    c = linear(rng, common(rng))
    c["rope_parameters"] |= {"partial_rotary_factor": rng.choice([0.25, 0.5, 1.0])}
    dense = dict(mlp_only_layers=list(range(c["num_hidden_layers"])))
    sparse = experts(rng, True) | dict(norm_topk_prob=rng.random() < 0.5)
    return c | rng.choice([dense, sparse]) | dict(head_dim=rng.choice([8, 16]))


def qwen3_5_text(rng):
    c = linear(rng, common(rng))
    share = {"partial_rotary_factor": rng.choice([0.25, 0.5]), "mrope_section": [1, 1, 0]}
    c["rope_parameters"] |= share
    return c | dict(head_dim=rng.choice([8, 16]))


def qwen3_5_moe_text(rng):
    c = qwen3_5_text(rng) | experts(rng, True)
    del c["intermediate_size"]
    return c


def olmo_hybrid(rng):
    c = linear(rng, common(rng)) | dict(linear_allow_neg_eigval=rng.random() < 0.7)
    if rng.random() < 0.5:
        c["rope_parameters"] = None
    return c


def mamba2(rng):
    heads, width = rng.choice([(4, 4), (2, 8), (8, 4), (4, 12), (6, 4)])
    limits = rng.choice([{}, {}, {"time_step_limit": (0.2, 0.8)}, {"time_step_limit": (0.3, float("inf"))}])
    return limits | dict(
        vocab_size=rng.randint(11, 90), hidden_size=heads * width // 2, num_heads=heads, head_dim=width,
        state_size=rng.choice([4, 6, 16]), num_hidden_layers=rng.randint(1, 4), expand=2,
        n_groups=rng.choice([g for g in (1, 1, 2, 4) if heads % g == 0]),
        conv_kernel=rng.choice([2, 4]), use_conv_bias=rng.random() < 0.7, initializer_range=0.2,
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]), tie_word_embeddings=rng.random() < 0.5,
        chunk_size=rng.choice([8, 16, 256]), bos_token_id=0, eos_token_id=None, pad_token_id=None)


def granitemoehybrid(rng):
    c = granite(rng)
    heads = rng.choice([h for h in (1, 2, 4, 8) if 2 * c["hidden_size"] % h == 0])
    n = c["num_hidden_layers"] = max(2, c["num_hidden_layers"])
    kinds = [rng.choice(["linear_attention", "full_attention"]) for _ in range(n)]
    kinds[0], kinds[-1] = rng.choice([("linear_attention", "full_attention"),
                                      ("full_attention", "linear_attention")])
    sparse = rng.choice([0, 0, rng.randint(2, 9)])
    return c | dict(
        mlp_bias=False, attention_bias=False, num_local_experts=sparse, layer_types=kinds,
        num_experts_per_tok=rng.randint(1, max(1, min(sparse, 4))),
        shared_intermediate_size=rng.randint(9, 40), mamba_n_heads=heads, mamba_n_groups=1,
        mamba_d_state=rng.choice([4, 6, 16]), mamba_d_conv=rng.choice([2, 4]),
        mamba_conv_bias=rng.random() < 0.7, position_embedding_type=rng.choice([None, "rope"]))


def lfm2(rng):
    c = common(rng)
    while c["rope_parameters"]["rope_type"] == "dynamic":
        c["rope_parameters"] = rope(rng, 64)
    c["norm_eps"] = c.pop("rms_norm_eps")
    n = c["num_hidden_layers"] = max(2, c["num_hidden_layers"])
    kinds = [rng.choice(["conv", "full_attention"]) for _ in range(n)]
    kinds[0], kinds[-1] = rng.choice([("conv", "full_attention"), ("full_attention", "conv")])
    own = [l for l in range(n) if kinds[l] == "full_attention"]
    return c | dict(conv_L_cache=rng.choice([2, 3, 3, 4]), conv_bias=False) | rng.choice(
        [{"layer_types": kinds}, {"full_attn_idxs": own}]) | rng.choice(
        [{"block_auto_adjust_ff_dim": False},
         {"block_multiple_of": 4, "block_ffn_dim_multiplier": rng.choice([1.0, 1.3])}])


def phi3(rng):
    """Short factors up to the original length; where that is 4, calls have the long ones."""
    c = common(rng)
    while c["hidden_size"] // c["num_attention_heads"] < 8:
        c = common(rng)
    share, L = rng.choice([0.5, 1.0]), rng.choice([4, 32])
    pairs = int(c["hidden_size"] // c["num_attention_heads"] * share) // 2
    c["rope_parameters"] = {"rope_type": "default", "rope_theta": rng.choice([100.0, 10000.0]),
                            "partial_rotary_factor": share}
    if rng.random() < 0.7:
        c["rope_parameters"] |= {"rope_type": "longrope"} | {
            f"{name}_factor": [round(rng.uniform(1, most), 3) for _ in range(pairs)]
            for name, most in (("short", 3), ("long", 20))}
        c["dra_rope"] = "long" if L == 4 else "short"
    return c | dict(original_max_position_embeddings=L, sliding_window=rng.choice([None, None, 3]))


FAMILIES = {f.__name__: f for f in (llama, qwen2, qwen3, mistral, smollm3, granite, olmo2, olmo3,
                                    gemma3_text, qwen3_next, qwen3_5_text, olmo_hybrid, mamba2,
                                    granitemoehybrid, lfm2, phi3, qwen3_moe, qwen3_5_moe_text)}


# ---- comparing ----------------------------------------------------------------------------------

def make(family, i):
    """A model in float32 with numbers of its own in every parameter."""
    rng = random.Random(f"{family} {i}")
    torch.manual_seed(i)
    config = AutoConfig.for_model(family, **FAMILIES[family](rng))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager")
    g = torch.Generator().manual_seed(i)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=g))
    return rng, model.eval()


def difference(a, b):
    a, b = a.double(), b.double()
    most = b.abs().max().item()
    worst = (a - b).abs().max().item() if a.shape == b.shape else float("inf")
    return worst / most if most else worst


def loss_of(model, ids):
    logits = model(ids, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def experts_of(found, name):
    """Files have a tensor for each expert, or Granite's own names."""
    granite = {"experts.gate_up_proj": "input_linear.weight", "experts.down_proj": "output_linear.weight"}
    for ours, theirs in granite.items():
        if name.replace(ours, theirs) in found:
            return found[name.replace(ours, theirs)]
    start, kind = name.rsplit(".", 1)
    kinds = ("gate_proj", "up_proj") if kind == "gate_up_proj" else (kind,)
    return torch.stack([torch.cat([found[f"{start}.{e}.{k}.weight"] for k in kinds])
                        for e in range(len([f for f in found if f.startswith(start + ".") and
                                            f.endswith(f".{kinds[0]}.weight")]))])


def gradient_of(model, found, name):
    """By the names of files, in which OLMo's convolutions are apart and some norms called otherwise."""
    if name in found:
        return found[name]
    if ".experts." in name:
        return experts_of(found, name)
    if "conv1d" in name:
        return torch.cat([found[name.replace("conv1d", f"{c}_conv1d")] for c in "qkv"])
    if name.endswith("router.weight"):
        return found[name.replace("router.weight", "router.layer.weight")]
    return found[name.replace("input_layernorm", "attention_layer_norm").replace(
        "post_attention_layernorm", "feedforward_layer_norm")]


def compare(model, side, rng, put):
    hybrid = model.config.model_type in HYBRIDS
    length = rng.choice([9, 33, 64, 65, 70]) if hybrid else rng.randint(6, 20)
    ids = torch.randint(0, model.config.vocab_size, (2, length),
                        generator=torch.Generator().manual_seed(rng.randint(0, 1 << 30)))
    with torch.no_grad():
        want = model(ids, use_cache=False).logits
    put("logits", difference(side.forward(ids)["logits"], want))
    parts = side.forward(ids, "--chunks", str(rng.randint(1, length - 1)))["logits"]
    put("parts", difference(parts, want))

    prompt = ids[:1, :5]
    text = prompt
    with torch.no_grad():
        for _ in range(12):
            best = model(text, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            text = torch.cat([text, best], 1)
    put("greedy tokens", float(side.greedy(prompt[0].tolist(), 12) != text[0, 5:].tolist()))

    model.zero_grad()
    loss = loss_of(model, ids)
    loss.backward()
    found = side.gradients(ids)
    put("loss", abs(found["loss"].item() - loss.item()) / loss.item())
    # Relative to the tensor's own largest, but not below a share of the largest of all: gradients
    # of biases of keys are what rounding leaves of a sum that is 0.
    most = max(p.grad.abs().max().item() for p in model.parameters())
    put("gradients", max((gradient_of(model, found, name) - p.grad).abs().max().item() /
                         max(p.grad.abs().max().item(), 0.1 * most)
                         for name, p in model.named_parameters()))
    return ids, want


def written(model, side, put, ids, want):
    """dra's own folder of it, and from there back to one that Hugging Face reads."""
    own, back, file = f"{side.work}/own", f"{side.work}/back", f"{side.work}/model.gguf"
    family = model.config.model_type
    subprocess.run(["rm", "-rf", own, back, file], check=True)
    side.call("convert", "--from", side.folder, "--to", own, "--check", "--threads", "1")
    side.call("convert", "--from", own, "--to", back, "--as", family, "--check", "--threads", "1")
    again, notes = AutoModelForCausalLM.from_pretrained(
        back, output_loading_info=True, attn_implementation="eager", experts_implementation="eager", dtype=want.dtype)
    wrong = [key for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if notes[key]]
    if wrong:
        raise RuntimeError(f"from_pretrained: {notes}")
    put("written", max(difference(a, b) for a, b in
                       zip(again.parameters(), model.parameters(), strict=True)))
    with torch.no_grad():
        logits = again.eval()(ids, use_cache=False).logits
    put("logits of written", difference(side.forward(ids)["logits"], logits))
    if family not in GGUF or can_not_be_gguf(model.config):
        return
    side.call("convert", "--from", side.folder, "--to", file, "--check", "--threads", "1")
    put("logits of GGUF", difference(Side(side.dra, file, side.work).forward(ids)["logits"], want))
    if not reads_gguf or not can_read_gguf(model.config) or want.dtype == torch.float64:
        return
    theirs = AutoModelForCausalLM.from_pretrained(side.work, gguf_file="model.gguf",
                                                  attn_implementation="eager", experts_implementation="eager", dtype=want.dtype)
    with torch.no_grad():
        put("GGUF, theirs", difference(theirs.eval()(ids, use_cache=False).logits, want))


def can_not_be_gguf(config):
    """What llama.cpp's keys have no words for."""
    if config.model_type == "mamba2":
        return not config.use_conv_bias or tuple(config.time_step_limit) != (0.0, float("inf"))
    if config.model_type == "qwen3_moe" and not config.norm_topk_prob:
        return True
    if config.model_type == "granitemoehybrid" and config.num_local_experts:
        return True
    r = config.rope_parameters
    if config.model_type in HYBRIDS:
        return (r["rope_type"] != "default" and getattr(config, "position_embedding_type", "rope") == "rope" or
                getattr(config, "linear_key_head_dim", 0) != getattr(config, "linear_value_head_dim", 0))
    r = r.get("full_attention", r)
    return (r["rope_type"] in ("dynamic",) or r.get("truncate") is False or
            "attention_factor" in r or "mscale" in r or
            getattr(config, "no_rope_layers", None) is not None)


def can_read_gguf(config):
    """What transformers reads of GGUF: no scaled rope, no biases but Qwen 2's, no experts."""
    r = config.rope_parameters
    return (config.model_type not in HYBRIDS and config.model_type not in (
                "smollm3", "qwen3_moe", "phi3", "olmo2", "olmo3", "granite") and
            r.get("full_attention", r)["rope_type"] == "default" and
            not getattr(config, "use_sliding_window", False) and not (
                config.model_type == "mistral" and config.sliding_window) and
            not getattr(config, "attention_bias", False) and not getattr(config, "mlp_bias", False))


def in_double(families):
    """Loads the library's modules once more, with float64 in place of float32."""
    def again(name):
        module = importlib.import_module(name)
        with open(module.__file__, encoding="utf-8") as f:
            text = f.read()
        for a, b in (("torch.float32", "torch.float64"), (".float()", ".double()"),
                     ("dtype=torch.float)", "dtype=torch.float64)"),
                     ("dtype=torch.float,", "dtype=torch.float64,")):
            text = text.replace(a, b)
        exec(compile(text, module.__file__, "exec"), module.__dict__)
    again("transformers.modeling_rope_utils")
    for family in families:
        name = family.removesuffix("_text")
        again(f"transformers.models.{name}.modeling_{name}")


def mend(model, folder):
    """Convolutions of OLMo Hybrid are saved in three equal parts, whatever their channels."""
    if model.config.model_type != "olmo_hybrid":
        return
    file = f"{folder}/model.safetensors"
    tensors = load_file(file)
    for name, conv in model.named_parameters():
        if not name.endswith("conv1d.weight"):
            continue
        own = model.get_submodule(name.removesuffix(".conv1d.weight"))
        for c, part in zip("qkv", conv.detach().split([own.key_dim, own.key_dim, own.value_dim])):
            tensors[name.replace("conv1d", f"{c}_conv1d")] = part.contiguous()
    save_file(tensors, file, {"format": "pt"})


def run(family, dra, count, column):
    worst, failed = {}, []
    for i in range(count):
        rng, model = make(family, i)
        with tempfile.TemporaryDirectory() as work:
            folder = f"{work}/model"
            torch.set_default_dtype(torch.float32)
            model.float().save_pretrained(folder)
            mend(model, folder)
            if column:
                model = as_double(model)
                torch.set_default_dtype(torch.float64)
            side = Side(dra, folder, work)

            def put(what, number):
                if not number <= bar(family, what, column):
                    failed.append(f"{family} {i}: {what} {number:.3g}, at most "
                                  f"{bar(family, what, column):g} {json.dumps(model.config.to_diff_dict())}")
                worst[what] = max(worst.get(what, 0.0), number)

            try:
                written(model, side, put, *compare(model, side, rng, put))
            except RuntimeError as error:
                failed.append(f"{family} {i}: {error} {json.dumps(model.config.to_diff_dict())}")
    torch.set_default_dtype(torch.float32)
    for what, number in worst.items():
        print(f"llama  {family:11} {'double' if column else 'float ':6} {what:18} {number:9.2e}"
              f"  of at most {bar(family, what, column):g}")
    return failed


def is_telling(family, model):
    """Small, but keys are shared, rope is scaled, and heads of hybrids differ in all their sizes."""
    c = model.config
    if family == "mamba2":
        return 1 < c.n_groups < c.num_heads and c.num_hidden_layers > 1 and c.use_conv_bias
    r = c.rope_parameters or {"rope_type": "default"}
    kind = (r if "rope_type" in r else r["full_attention"])["rope_type"]
    if family in HYBRIDS and family not in ("granitemoehybrid", "lfm2") and (
            c.linear_key_head_dim == c.linear_value_head_dim or c.linear_conv_kernel_dim != 4 or
            c.linear_num_key_heads in (1, c.linear_num_value_heads)):
        return False
    window = getattr(c, "sliding_window", None) or 0
    wide = family in ("qwen2", "mistral", "olmo3", "gemma3_text")
    kinds = ("llama3",) if family == "llama" else ("llama3", "yarn", "linear", "longrope")
    if family == "phi3" and (getattr(c, "dra_rope", "") != "long" or r["partial_rotary_factor"] == 1):
        return False
    return ((1 < window < 20 or not wide) and kind in kinds and c.num_hidden_layers > 2
            and c.num_key_value_heads < c.num_attention_heads
            and sum(p.numel() for p in model.parameters()) < 14000)


def fixtures(folder, families):
    """The first model of each family that tells much."""
    in_double(families)
    for family in families:
        i = 0
        rng, model = make(family, i)
        while not is_telling(family, model):
            i += 1
            rng, model = make(family, i)
        c = model.config
        path = f"{folder}/{family}"
        model.float().save_pretrained(path)
        mend(model, path)
        double = as_double(model)
        torch.set_default_dtype(torch.float64)
        ids = torch.randint(0, c.vocab_size, (1, 20))
        with torch.no_grad():
            logits = double(ids, use_cache=False).logits
        double.zero_grad()
        loss = loss_of(double, ids)
        loss.backward()
        grads = {f"grad.{name}": p.grad for name, p in double.named_parameters()}
        text = ids[:, :5]
        with torch.no_grad():
            for _ in range(12):
                best = double(text, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
                text = torch.cat([text, best], 1)
        torch.set_default_dtype(torch.float32)
        save_file({"ids": ids.to(torch.int32), "logits": logits, "loss": loss.detach(),
                   "greedy": text.to(torch.int32), "norms": torch.stack(
                       [grads[name].norm() for name in sorted(grads)])},
                  f"{path}/expected.safetensors")


def as_double(model):
    """The same model of the modules in double."""
    torch.set_default_dtype(torch.float64)
    double = getattr(sys.modules[type(model).__module__], type(model).__name__)(model.config)
    double.load_state_dict(model.double().state_dict())
    torch.set_default_dtype(torch.float32)
    return double.eval()


def cache_of(found):
    """The tensors of a cache, called as `dra forward --outputs cache` calls them."""
    cache = getattr(found, "past_key_values", None) or found.cache_params
    tensors = {}
    for l, layer in enumerate(cache.layers):
        for name in ("keys", "values", "conv_states", "recurrent_states"):
            own = getattr(layer, name, None)
            own = own.get(0) if isinstance(own, dict) else own
            if own is not None:
                tensors[f"layers.{l}.{name}"] = own.clone()
    return tensors


def caches(folder, families):
    """Of the models that fixtures() has made: their caches after 9 tokens."""
    in_double(families)
    for family in families:
        path = f"{folder}/{family}"
        model = as_double(AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", experts_implementation="eager"))
        ids = load_file(f"{path}/expected.safetensors")["ids"].long()
        with torch.no_grad():
            save_file(cache_of(model(ids[:, :9], use_cache=True)), f"{path}/cache.safetensors")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "fixtures":
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        fixtures(sys.argv[2], sys.argv[3:] or list(FAMILIES))
        return
    if sys.argv[1] == "caches":
        caches(sys.argv[2], sys.argv[3:])
        return
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    programs = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    families = sys.argv[4:] or list(FAMILIES)
    failed = []
    for column, dra in enumerate(programs):
        if dra == "-":
            continue
        if column and programs[0] != "-":  # a library that has run already is not replaced as a whole
            again = [sys.executable, __file__, "-", dra, str(count), *families]
            failed += ["in double"] if subprocess.run(again).returncode else []
            break
        if column:
            in_double(families)
        for family in families:
            failed += run(family, dra, count, column)
    for line in failed:
        print(f"llama  FAILED  {line}")
    sys.exit(1 if failed else 0)


main()
