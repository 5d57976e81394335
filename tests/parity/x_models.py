"""Models of x-transformers: a config of the folder format "x-transformers" made with the library,
with numbers of its own in every parameter; the configs that x_transformers.py compares.

All of it is in float64, with parameters that float32 holds exactly. Where the library would compute
in float32 all the same, it is told not to: the softmax of attention, frequencies of rotary
positions, distances of the dynamic bias.
"""
import contextlib
import functools
import importlib
import json
import math
import os
import pathlib
import sys
from types import SimpleNamespace

import loguru
import torch
from safetensors.torch import save_file

# Folders of releases, by the name that configs have for them; ResiDual was in an earlier one alone.
# run.sh has their versions; it installs E as usual and the others into folders of their own.
FOLDERS = {"E": None, "N": "newer", "resi_dual": "resi-dual"}
LIBRARIES = {}
NOT_WRAPPER = {"model_type", "wrapper", "release", "attn_layers", "net", "context", "src_prepend"}


# ---- the library --------------------------------------------------------------------------------

def library(release):
    """The package in one of its releases; modules of several can be in use at the same time."""
    if release not in LIBRARIES:
        here, path = pathlib.Path(__file__).parent.resolve(), list(sys.path)
        folder = FOLDERS[release] and pathlib.Path(sys.prefix, "x-transformers", FOLDERS[release])
        for name in [n for n in sys.modules if n.split(".")[0] == "x_transformers"]:
            del sys.modules[name]
        others = [p for p in path if pathlib.Path(p or ".").resolve() != here]
        sys.path = [str(folder), *others] if folder else others
        LIBRARIES[release] = importlib.import_module("x_transformers")
        loguru.logger.disable("x_transformers")  # its remarks on narrow heads
        sys.path = path
    return LIBRARIES[release]


def of_config(config):
    """The release that makes a model of this config."""
    early = config.get("attn_layers", {}).get("resi_dual")
    return library("resi_dual" if early else config.get("release", "E"))


def tuples(options):
    return {key: tuple(value) if isinstance(value, list) else value
            for key, value in options.items() if value is not None}


def build(config, lib=None):
    """A model with the library's first values; one with a context is a pair of models."""
    lib = lib or of_config(config)
    make = getattr(lib, config["wrapper"])
    options = tuples({k: v for k, v in config.items() if k not in NOT_WRAPPER})
    if "attn_layers" in config:
        stack = tuples(config["attn_layers"])
        options["attn_layers"] = getattr(lib, stack.pop("type"))(**stack)
    if "net" in config:
        options["net"] = build(config["net"], lib)
    model = make(**options)
    if "context" not in config and not isinstance(config.get("src_prepend"), dict):
        return model
    if "context" in config:
        return torch.nn.ModuleDict({"decoder": model, "encoder": build(config["context"], lib)})
    model.vit = build(config["src_prepend"], lib)
    return model


def without_float(method):
    """The method, with what it takes as float32 in double."""
    def call(*args, **options):
        plain, torch.Tensor.float = torch.Tensor.float, torch.Tensor.double
        try:
            return method(*args, **options)
        finally:
            torch.Tensor.float = plain
    return call


def in_double(model):
    for part in model.modules():
        if type(part).__name__ == "RotaryEmbedding" and len(part.inv_freq) > 1:
            width = round(-2 * math.log(10000) / math.log(part.inv_freq[1]))  # it may be odd
            part.inv_freq = 10000.0 ** (-torch.arange(0, width, 2) / width)
        if type(part).__name__ == "DynamicPositionBias":
            part.forward = without_float(part.forward)
        if getattr(getattr(part, "attn_fn", None), "keywords", {}).get("dtype"):
            part.attn_fn = functools.partial(torch.nn.functional.softmax, dim=-1)
    return model.double().eval()


def shake(model, seed):
    """First values are special (ones, identities, open gates): every parameter gets something of
    its own. Matrices grow with their width as they do at first."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("to_v_gate.bias"):
                p.zero_()
            spread = p[0].numel() ** -0.5 if name.endswith("weight") else 0.3
            p.add_(spread * torch.randn(p.shape, generator=g)).copy_(p.float())


def make(config, seed):
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(seed)
    model = in_double(build(config))
    shake(model, seed)
    return model


@contextlib.contextmanager
def in_float(model, config):
    """The same model as the library has it in float32, in a context where that is the default."""
    torch.set_default_dtype(torch.float32)
    try:
        again = build(config).eval()
        again.load_state_dict(model.state_dict())
        yield again
    finally:
        torch.set_default_dtype(torch.float64)


def save(model, config, folder, dtype):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config, f, indent=2)
    save_file({n: t.to(dtype).contiguous().clone() for n, t in model.state_dict().items()},
              f"{folder}/model.safetensors")


# ---- cases --------------------------------------------------------------------------------------

SIZES = {"dim": 32, "depth": 2, "heads": 4, "attn_dim_head": 8}
CASES = []


def config_of(kind="Decoder", wrap=None, release="E", **stack):
    """A config with the sizes above; None takes one away."""
    layers = {k: v for k, v in {**SIZES, **stack}.items() if v is not None}
    return {"model_type": "x-transformers", "wrapper": "TransformerWrapper", "num_tokens": 37,
            "max_seq_len": 24, "release": release, **(wrap or {}),
            "attn_layers": {"type": kind, **layers}}


def words(value):
    if isinstance(value, (tuple, list)):
        return "(" + ",".join(map(str, value)) + ")"
    return value if isinstance(value, str) else json.dumps(value)


def title(kind, wrap, release, stack, masked):
    """What is not a default, in words."""
    options = {**(wrap or {}), **stack}
    text = [k if v is True else f"{k}={words(v)}" for k, v in options.items() if v is not None]
    text += [f"release {release}"] * (release != "E") + ["masked"] * masked
    return " ".join([kind, *text])


def case(features, kind="Decoder", T=13, masked=False, ignored=False, wrap=None, release="E",
         **stack):
    """A model and what it reads: two rows of T tokens; masked: the last ones of a row are pads;
    ignored: some are no targets."""
    CASES.append(SimpleNamespace(
        features=features, T=T, masked=masked, ignored=ignored,
        name=title(kind, wrap, release, stack, masked) + ", some ignored" * ignored,
        config=config_of(kind, wrap, release, **stack)))


def wrapper_cases():
    case("F01 F31")
    case("F01", masked=True)
    case("F02", "Encoder")
    case("F02", "Encoder", masked=True)
    case("F03", attn_dim_head=16)
    case("F03", heads=2, attn_dim_head=None)
    case("F13 F75", ignored=True)
    case("F16", T=24)
    case("F16", wrap={"emb_dim": 20})
    case("F17", wrap={"use_abs_pos_emb": False})
    case("F17", "Encoder", wrap={"use_abs_pos_emb": False})
    case("F18", wrap={"l2norm_embed": True})
    case("F18 F19", wrap={"l2norm_embed": True, "post_emb_norm": True})
    case("F19", wrap={"post_emb_norm": True})
    case("F19", wrap={"post_emb_norm": True, "emb_dim": 24})
    case("F20", wrap={"num_memory_tokens": 3})
    case("F20", "Encoder", masked=True, wrap={"num_memory_tokens": 3})
    case("F20 F50", wrap={"num_memory_tokens": 2}, rotary_pos_emb=True)
    case("3.6", wrap={"tie_embedding": True})


def norm_and_feed_forward_cases():
    case("F21", norm_add_unit_offset=False)
    case("F22", use_scalenorm=True)
    case("F23", use_rmsnorm=True)
    case("F24", use_simple_rmsnorm=True)
    case("F19 F23", "Encoder", wrap={"post_emb_norm": True}, use_rmsnorm=True)
    case("F25", ff_mult=2)
    case("F26", ff_glu=True)
    case("F27", ff_swish=True)
    case("F26 F27", ff_glu=True, ff_swish=True)
    case("F28", ff_relu_squared=True)
    case("F26 F28", ff_glu=True, ff_relu_squared=True)
    case("F27 F28", ff_swish=True, ff_relu_squared=True)
    case("F29", ff_no_bias=True)
    case("F26 F29", ff_glu=True, ff_no_bias=True)
    case("F30", ff_post_act_ln=True)
    case("F26 F30", ff_glu=True, ff_post_act_ln=True)


def attention_cases():
    case("F31", heads=1, attn_dim_head=16)
    case("F32", attn_flash=True)
    case("F32", "Encoder", masked=True, attn_flash=True, attn_num_mem_kv=3)
    case("F32 F39 F56", attn_flash=True, attn_kv_heads=2, alibi_pos_bias=True)
    case("F32 F43", attn_flash=True, attn_qk_norm=True)
    case("F33", attn_num_mem_kv=3)
    case("F33", "Encoder", masked=True, attn_num_mem_kv=3)
    case("F33 F43", attn_num_mem_kv=3, attn_qk_norm=True, attn_qk_norm_dim_scale=True)
    case("F33 F44", attn_num_mem_kv=3, attn_qk_norm=True, attn_qk_norm_groups=2)
    case("F33 F44", release="N", attn_num_mem_kv=3, attn_qk_norm=True, attn_qk_norm_groups=2)
    case("F34", attn_sparse_topk=3)
    case("F34", "Encoder", masked=True, attn_sparse_topk=3, attn_num_mem_kv=2)
    case("F35", attn_sparse_topk=3, attn_sparse_topk_straight_through=True)
    case("F36", attn_hard=True)
    case("F36", "Encoder", masked=True, attn_hard=True)
    case("F37", attn_pre_talking_heads=True)
    case("F37", attn_post_talking_heads=True)
    case("F37", "Encoder", masked=True, attn_pre_talking_heads=True, attn_post_talking_heads=True)
    case("F38", attn_one_kv_head=True)
    case("F39", attn_kv_heads=2)
    case("F33 F39", attn_kv_heads=2, attn_num_mem_kv=2)
    case("F40", attn_on_attn=True)
    case("F41", attn_gate_values=True)
    case("F41", release="N", attn_gate_values=True)
    case("F42", attn_head_scale=True)
    case("F43", attn_qk_norm=True)
    case("F44", attn_qk_norm=True, attn_qk_norm_groups=2)
    case("F45", attn_qk_norm=True, attn_qk_norm_scale=3)
    case("F46", attn_qk_norm=True, attn_qk_norm_dim_scale=True)
    case("F46", release="N", attn_qk_norm=True, attn_qk_norm_dim_scale=True)
    case("F47", depth=3, residual_attn=True)
    case("F47 F49 F58", "Encoder", pre_norm=False, residual_attn=True, rel_pos_bias=True)
    case("F37 F47", residual_attn=True, attn_pre_talking_heads=True)


def position_cases():
    case("F49", T=140, wrap={"max_seq_len": 140}, rel_pos_bias=True)
    case("F49", "Encoder", T=140, wrap={"max_seq_len": 140}, rel_pos_bias=True)
    case("F49", T=24, rel_pos_bias=True, rel_pos_num_buckets=8, rel_pos_max_distance=16)
    case("F50", rotary_pos_emb=True)
    case("F50", "Encoder", masked=True, rotary_pos_emb=True)
    case("F50", rotary_pos_emb=True, attn_dim_head=10)
    case("F50", rotary_pos_emb=True, rotary_emb_dim=8)
    case("F39 F50", rotary_pos_emb=True, attn_kv_heads=2)
    case("F51", rotary_pos_emb=True, rotate_num_heads=1)
    case("F52", rotary_xpos=True)
    case("F52 F53", T=24, rotary_xpos=True, rotary_xpos_scale_base=16)
    case("F54", dynamic_pos_bias=True)
    case("F54", "Encoder", masked=True, dynamic_pos_bias=True, dynamic_pos_bias_mlp_depth=3)
    case("F55", dynamic_pos_bias=True, dynamic_pos_bias_log_distance=True)
    case("F56", alibi_pos_bias=True)
    case("F56", "Encoder", heads=6, alibi_pos_bias=True)
    case("F56 F17", alibi_pos_bias=True, wrap={"use_abs_pos_emb": False})
    case("F57", alibi_pos_bias=True, alibi_num_heads=3)


def layout_cases():
    case("F58", pre_norm=False)
    case("F58", "Encoder", masked=True, pre_norm=False, use_rmsnorm=True)
    case("F59", depth=3, sandwich_coef=1)
    case("F59", depth=2, sandwich_coef=2)
    case("F59 F61", depth=3, sandwich_coef=1, macaron=True)
    case("F60", depth=3, weight_tie_layers=True)
    case("F60", depth=None, custom_layers=["a", "f", "f", "a"])
    case("F60", depth=None, custom_layers=["a", "f", "a", "f"],
         layers_execute_order=[0, 1, 0, 1, 2, 3, 2, 3])
    case("F61", "Encoder", macaron=True)
    case("F61 F64", macaron=True, sandwich_norm=True)
    case("F62", gate_residual=True)
    case("F62 F63", gate_residual=True, scale_residual=True)
    case("F63", scale_residual=True)
    case("F64", sandwich_norm=True)
    case("F65", resi_dual=True)
    case("F65", "Encoder", masked=True, resi_dual=True, use_rmsnorm=True)
    case("F66", resi_dual=True, resi_dual_scale=0.1)
    case("F67", shift_tokens=1)
    case("F67", "Encoder", shift_tokens=1)
    case("F67", "Encoder", masked=True, shift_tokens=2)
    case("F67", shift_tokens=[1, 0, 2, 1])
    case("F67", dim=31, shift_tokens=2)
    case("F61 F67", macaron=True, shift_tokens=1)
    case("F20 F67", wrap={"num_memory_tokens": 2}, shift_tokens=1)


def beyond_cases():
    """Options that the library's README does not have."""
    case("beyond", attn_softclamp_logits=True, attn_logit_softclamp_value=2, rel_pos_bias=True)
    case("beyond", "Encoder", masked=True, softclamp_output=True, softclamp_output_value=1.5)
    case("beyond", release="N", attn_head_learned_sink=True, attn_num_mem_kv=2)
    case("beyond", depth=3, add_value_residual=True)
    case("beyond", add_value_residual=True, learned_value_residual_mix=False, attn_kv_heads=2)
    case("beyond", attn_data_dependent_alibi=True)
    case("beyond", attn_data_dependent_alibi=True, attn_num_mem_kv=2, attn_kv_heads=2)
    case("beyond", use_layerscale=True, layerscale_init_value=0.5, shift_tokens=1)
    case("beyond", zero_init_branch_output=True)
    case("beyond", num_residual_streams=3)
    case("beyond", "Encoder", masked=True, num_residual_streams=2)
    case("beyond", attn_use_latent_kv=True, attn_dim_latent_kv=6)
    case("beyond", attn_use_latent_kv=True, attn_dim_latent_kv=6, attn_use_latent_q=True,
         attn_dim_latent_q=5, attn_latent_rope_subheads=2, rotary_pos_emb=True)


def dropout_cases():
    """Nothing is dropped when a model is only read; the options must be known all the same."""
    case("F71", wrap={"emb_dropout": 0.1})
    case("F72", layer_dropout=0.3)
    case("F72", layer_dropout=[0.1, 0.2, 0.3, 0.4])
    case("F73", attn_dropout=0.2)
    case("F74", ff_dropout=0.2)


# ---- random combinations ------------------------------------------------------------------------

def some(rng, p, *choices):
    """One of the choices, each a dict of options, with probability p."""
    return dict(rng.choice(choices)) if rng.random() < p else {}


def random_attention(rng, heads):
    groups = [k for k in (1, 2, 3) if heads % k == 0 and k < heads]
    return {
        **some(rng, 0.2, {"attn_flash": True}),
        **some(rng, 0.3, {"attn_num_mem_kv": rng.randint(1, 4)}),
        **some(rng, 0.3, {"attn_sparse_topk": 2}, {"attn_hard": True},
               {"attn_sparse_topk": 3, "attn_sparse_topk_straight_through": True}),
        **some(rng, 0.3, {"attn_pre_talking_heads": True}, {"attn_post_talking_heads": True},
               {"attn_pre_talking_heads": True, "attn_post_talking_heads": True}),
        **some(rng, 0.3 * bool(groups), {"attn_one_kv_head": True},
               {"attn_kv_heads": rng.choice(groups or [1])}),
        **some(rng, 0.2, {"attn_on_attn": True}),
        **some(rng, 0.2, {"attn_gate_values": True}),
        **some(rng, 0.2, {"attn_head_scale": True}),
        **some(rng, 0.3, {"attn_qk_norm": True}, {"attn_qk_norm": True, "attn_qk_norm_groups": 2},
               {"attn_qk_norm": True, "attn_qk_norm_scale": 4},
               {"attn_qk_norm": True, "attn_qk_norm_dim_scale": True}),
        **some(rng, 0.1, {"attn_dropout": 0.1}),
    }


def random_feed_forward(rng):
    return {
        **some(rng, 0.4, {"ff_glu": True}),
        **some(rng, 0.4, {"ff_swish": True}, {"ff_relu_squared": True}),
        **some(rng, 0.2, {"ff_no_bias": True}),
        **some(rng, 0.2, {"ff_post_act_ln": True}),
        **some(rng, 0.2, {"ff_mult": 3}),
        **some(rng, 0.1, {"ff_dropout": 0.1}),
    }


def random_positions(rng, heads):
    return some(
        rng, 0.7, {"rel_pos_bias": True}, {"alibi_pos_bias": True}, {"dynamic_pos_bias": True},
        {"rel_pos_bias": True, "rel_pos_num_buckets": 8, "rel_pos_max_distance": 16},
        {"alibi_pos_bias": True, "alibi_num_heads": rng.randint(1, heads)},
        {"dynamic_pos_bias": True, "dynamic_pos_bias_log_distance": True},
        {"rotary_pos_emb": True}, {"rotary_pos_emb": True, "rotary_emb_dim": 6},
        {"rotary_pos_emb": True, "rotate_num_heads": rng.randint(1, heads)}, {"rotary_xpos": True},
        {"rotary_pos_emb": True, "alibi_pos_bias": True})


def random_layout(rng):
    depth = rng.randint(1, 3)
    layout = {"depth": depth, **some(
        rng, 0.4, {"weight_tie_layers": True}, {"sandwich_coef": rng.randint(1, depth)},
        {"macaron": True}, {"depth": None, "custom_layers": ["a", "f", "a", "f"],
                            "layers_execute_order": [0, 1, 2, 3, 0, 3]})}
    return {
        **layout,
        **some(rng, 0.4, {"use_scalenorm": True}, {"use_rmsnorm": True},
               {"use_simple_rmsnorm": True}),
        **some(rng, 0.3, {"pre_norm": False}, {"sandwich_norm": True}),
        **some(rng, 0.3, {"gate_residual": True}, {"scale_residual": True},
               {"gate_residual": True, "scale_residual": True}),
        **some(rng, 0.2, {"residual_attn": True}),
        **some(rng, 0.2, {"shift_tokens": rng.randint(1, 2)}),
        **some(rng, 0.1, {"layer_dropout": 0.1}),
    }


def random_case(rng):
    heads = rng.choice([1, 2, 4, 4, 6, 8])
    wrap = {
        **some(rng, 0.2, {"emb_dim": 20}, {"tie_embedding": True}),
        **some(rng, 0.2, {"post_emb_norm": True}), **some(rng, 0.2, {"l2norm_embed": True}),
        **some(rng, 0.2, {"num_memory_tokens": rng.randint(1, 4)}),
        **some(rng, 0.2, {"use_abs_pos_emb": False}), **some(rng, 0.1, {"emb_dropout": 0.1}),
    }
    stack = {"dim": rng.choice([24, 32, 40]), "heads": heads,
             "attn_dim_head": rng.choice([8, 10, 16]), **random_layout(rng),
             **random_attention(rng, heads), **random_feed_forward(rng),
             **random_positions(rng, heads)}
    kind, masked = rng.choice(["Decoder", "Decoder", "Encoder"]), rng.random() < 0.4
    return SimpleNamespace(
        features="mixed", T=rng.randint(6, 20), masked=masked, ignored=False,
        name=title(kind, wrap, "E", stack, masked), config=config_of(kind, wrap, "E", **stack))


def accepted(drawn):
    """Whether the library makes this model and its numbers are finite."""
    try:
        model = make(drawn.config, 0)
        return bool(model(torch.zeros(1, drawn.T, dtype=torch.long)).isfinite().all())
    except Exception:  # a refusal of any kind
        return False


def random_cases(rng):
    """Without end."""
    while True:
        drawn = random_case(rng)
        if accepted(drawn):
            yield drawn


for add in (wrapper_cases, norm_and_feed_forward_cases, attention_cases, position_cases,
            layout_cases, dropout_cases, beyond_cases):
    add()
