"""Live modules of x-transformers as models of dra, and back.

    m = dra.xt.from_module(TransformerWrapper(...))    # or a wrapper around it, a bare stack, ...
    module = dra.xt.to_module(m)

The library keeps few options of its constructors, so they are found again by what a module is made
of: tables below say where each shows. What they miss would be another model: weights must have the
names and shapes of the config that was found, and both must put out the same for drawn inputs.
"""
import contextlib
import json
import os
import tempfile
from functools import partial
from importlib import metadata
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import torch
import x_transformers
from torch import Tensor, nn
from torch.nn import functional as F
from x_transformers import attend, continuous, xval
from x_transformers import x_transformers as xt

from . import _c
from ._library import Lent, call, lib, path_bytes
from .errors import InvalidValue
from .model import Model, load

#: The release whose meaning options have if a config says nothing.
FIRST_RELEASE = (2, 1, 37)


class Option(NamedTuple):
    """An option of a constructor: its default, and where it shows in what was made."""
    name: str
    usual: Any
    find: Callable[[Any], Any]


def _there(name: str) -> Callable[[Any], bool]:
    """Whether there is a part of this name."""
    return lambda x: getattr(x, name, None) is not None


def _kept(name: str, usual: Any) -> Option:
    """An option that is an attribute of the same name."""
    return Option(name, usual, lambda x: getattr(x, name, usual))


def _found(options: Tuple[Option, ...], x: Any, prefix: str = "") -> Dict[str, Any]:
    """Options of a module that are not as usual."""
    values = {prefix + o.name: (o.find(x), o.usual) for o in options}
    return {name: value for name, (value, usual) in values.items() if value != usual}


# ---- parts of a stack ----------------------------------------------------------------------------

def _sparse(a: Any, name: str) -> Any:
    """An option of sparse attention, which is bound in a function."""
    return a.attend.attn_fn.keywords.get(name) if isinstance(a.attend.attn_fn, partial) else None


def _rows(x: Optional[nn.Module]) -> Optional[int]:
    return None if x is None else x.weight.shape[0]


ATTENTION = (
    Option("flash", False, lambda a: a.attend.flash),
    Option("dim_head", 64, lambda a: a.to_q.weight.shape[0] // a.heads),
    Option("dropout", 0., lambda a: a.attend.dropout),
    Option("kv_heads", None, lambda a: a.kv_heads if a.kv_heads != a.heads else None),
    _kept("num_mem_kv", 0),
    _kept("sparse_topk", None),
    Option("sparse_topk_straight_through", False, lambda a: bool(_sparse(a, "straight_through"))),
    Option("hard", False, lambda a: a.attend.attn_fn is attend.one_hot_straight_through),
    Option("sigmoid", False, lambda a: a.attend.attn_fn is F.sigmoid),
    Option("pre_talking_heads", False, lambda a: _there("pre_softmax_talking_heads")(a.attend)),
    Option("post_talking_heads", False, lambda a: _there("post_softmax_talking_heads")(a.attend)),
    Option("pre_scale_post_talking_heads", False,
           lambda a: _there("pre_scale_post_talking_heads")(a.attend)),
    Option("on_attn", False, lambda a: a.attn_on_attn),
    Option("gate_values", False, _there("to_v_gate")),
    Option("swiglu_values", False, lambda a: _there("to_v_gate")(a) and
           a.to_v_gate_activation is F.silu),
    Option("gate_value_heads", False, _there("to_v_head_gate")),
    _kept("head_scale", False),
    _kept("qk_norm", False),
    _kept("qk_norm_groups", 1),
    _kept("qk_norm_scale", 10),
    _kept("qk_norm_dim_scale", False),
    Option("softclamp_logits", False, lambda a: a.attend.softclamp_logits),
    Option("logit_softclamp_value", 50., lambda a: a.attend.logit_softclamp_value),
    Option("data_dependent_alibi", False, _there("data_dependent_alibi")),
    Option("use_latent_kv", False, _there("to_latent_kv")),
    Option("dim_latent_kv", None, lambda a: _rows(a.to_latent_kv)),
    Option("use_latent_q", False, _there("to_latent_q")),
    Option("dim_latent_q", None, lambda a: _rows(a.to_latent_q)),
    Option("latent_rope_subheads", None, lambda a: a.to_rotateable_k and
           a.to_rotateable_k.weight.shape[0] * a.heads // a.to_q.weight.shape[0]),
    Option("l2_distance", False, lambda a: a.attend.l2_distance),
    _kept("laser", False),
    _kept("laser_softclamp_value", 15.),
    _kept("max_attend_past", None),
    Option("use_cope", False, lambda a: _there("cope")(a.attend)),
    Option("cope_max_pos", 16, lambda a: a.attend.cope.max_pos if a.attend.cope else 16),
    Option("cope_talking_heads", False,
           lambda a: bool(a.attend.cope) and _there("talking_heads")(a.attend.cope)),
    Option("cope_soft_onehot_pos", False,
           lambda a: bool(a.attend.cope) and a.attend.cope.soft_onehot),
    Option("selective", False, lambda a: a.attend.selective),
    Option("add_zero_kv", False, lambda a: a.attend.add_zero_kv),
    Option("hybrid_module", None, lambda a: type(a.hybrid_module).__name__
           if _there("hybrid_module")(a) else None),
)


def _activation(f: Any) -> nn.Module:
    first = f.ff[0]
    return first.act if isinstance(first, xt.GLU) else first[1]


FEED_FORWARD = (
    Option("mult", 4, lambda f: f.ff[-1].weight.shape[1] / f.ff[-1].weight.shape[0]),
    Option("glu", False, lambda f: isinstance(f.ff[0], xt.GLU)),
    Option("glu_mult_bias", False, lambda f: isinstance(getattr(f.ff[0], "mult_bias", 1), Tensor)),
    Option("swish", False, lambda f: isinstance(_activation(f), nn.SiLU)),
    Option("relu_squared", False, lambda f: isinstance(_activation(f), xt.ReluSquared)),
    Option("post_act_ln", False, lambda f: isinstance(f.ff[1], xt.LayerNorm)),
    Option("dropout", 0., lambda f: [x.p for x in f.ff if isinstance(x, nn.Dropout)][0]),
    Option("no_bias", False, lambda f: f.ff[-1].bias is None),
)


class Layer(NamedTuple):
    """A sublayer without what is wrapped around it."""
    kind: str
    core: nn.Module
    norms: Any
    residual: nn.Module
    wraps: Tuple[nn.Module, ...]

    def wrap(self, kind: type) -> Optional[Any]:
        return next((w for w in self.wraps if isinstance(w, kind)), None)

    @property
    def shift(self) -> int:
        wrap = self.wrap(xt.ShiftTokens)
        return max(wrap.shifts) if wrap is not None else 0


def _layers(stack: Any) -> List[Layer]:
    out = []
    for kind, (norms, core, residual) in zip(stack.layer_types, stack.layers):
        wraps = []
        while hasattr(core, "fn"):
            wraps.append(core)
            core = core.fn
        out.append(Layer(kind, core, norms, residual, tuple(wraps)))
    return out


def _of_kind(layers: List[Layer], kind: str, options: Tuple[Option, ...],
             prefix: str) -> Dict[str, Any]:
    """Options of all layers of a kind, which must agree."""
    found = [_found(options, x.core, prefix) for x in layers if x.kind == kind]
    for other in found[1:]:
        if other != found[0]:
            raise InvalidValue("xt: %s of layers differ: %s and %s" % (
                prefix + "options", found[0], other))
    return found[0] if found else {}


# ---- a stack -------------------------------------------------------------------------------------

NORMS = {"ScaleNorm": "use_scalenorm", "RMSNorm": "use_rmsnorm",
         "SimpleRMSNorm": "use_simple_rmsnorm", "DynamicTanh": "use_dynamic_tanh",
         "AdaptiveLayerNorm": "use_adaptive_layernorm", "AdaptiveRMSNorm": "use_adaptive_rmsnorm"}

STACK = (
    _kept("pre_norm", True), _kept("sandwich_norm", False), _kept("residual_attn", False),
    _kept("cross_residual_attn", False), _kept("softclamp_output", False),
    _kept("softclamp_output_value", 30.), _kept("unet_skips", False),
    _kept("reinject_input", False), _kept("add_value_residual", False),
    Option("learned_reinject_input_gate", False, _there("learned_reinject_input_gate")),
    _kept("num_residual_streams", 1),
    Option("integrate_layers", False,
           lambda s: any(x is not None for x in getattr(s, "layer_integrators", ()))),
)


def _norm_options(layers: List[Layer]) -> Dict[str, Any]:
    norm = next(n for x in layers for n in x.norms if n is not None)
    name = type(norm).__name__
    out: Dict[str, Any] = {NORMS[name]: True} if name in NORMS else {}
    if name not in NORMS and name != "LayerNorm":
        raise InvalidValue("xt: dra knows no norm %s" % name)
    scale = layers[0].wrap(xt.LayerScale)
    for part, offset in ((norm, "unit_offset"), (norm, "gamma_offset"), (scale, "unit_offset")):
        if part is not None and not getattr(part, offset, True):
            out["norm_add_unit_offset"] = False
    if getattr(norm, "pre_tanh_scale_offset", 0.) not in (0., 1.):
        out["dynamic_tanh_init_alpha"] = norm.pre_tanh_scale_offset
    return out


def _condition_options(stack: Any, layers: List[Layer]) -> Dict[str, Any]:
    if not getattr(stack, "need_condition", False):
        return {}
    out: Dict[str, Any] = {"dim_condition": stack.dim_condition}
    if layers[0].wrap(xt.AdaptiveLayerScale) is not None:
        out["use_adaptive_layerscale"] = True
    if not isinstance(stack.adaptive_mlp, nn.Identity):
        expanded, dim = stack.adaptive_mlp[0].weight.shape
        out.update(adaptive_condition_mlp=True, adaptive_condition_mlp_expansion=expanded // dim)
    return out


def _rotary_options(rotary: Any) -> Dict[str, Any]:
    dim = 2 * len(rotary.inv_freq)
    out: Dict[str, Any] = {"rotary_pos_emb": True, "rotary_emb_dim": dim}
    if rotary.interpolation_factor != 1:
        out["rotary_interpolation_factor"] = rotary.interpolation_factor
    if rotary.scale is not None:
        out.update(rotary_xpos=True, rotary_xpos_scale_base=rotary.scale_base)
    usual = 1. / (10000 ** (torch.arange(0, dim, 2).float() / dim))
    if not torch.allclose(rotary.inv_freq.cpu().float(), usual, rtol=1e-4):
        raise InvalidValue("xt: rotary_base_rescale_factor: dra does not have it yet")
    return out


def _position_options(stack: Any, layers: List[Layer]) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    bias = stack.rel_pos
    if isinstance(bias, xt.RelativePositionBias):
        out.update(rel_pos_bias=True, rel_pos_num_buckets=bias.num_buckets,
                   rel_pos_max_distance=bias.max_distance)
    elif isinstance(bias, xt.DynamicPositionBias):
        out.update(dynamic_pos_bias=True, dynamic_pos_bias_log_distance=bias.log_distance,
                   dynamic_pos_bias_mlp_depth=len(bias.mlp) - 1)
        if any(isinstance(x, (nn.LayerNorm, xt.LayerNorm)) for x in bias.mlp[0]):
            out["dynamic_pos_bias_norm"] = True
    elif isinstance(bias, xt.AlibiPositionalBias):
        out["alibi_pos_bias"] = True
        if bias.heads != bias.total_heads:
            out["alibi_num_heads"] = bias.heads
    elif bias is not None:
        raise InvalidValue("xt: dra knows no positions by %s" % type(bias).__name__)
    if stack.rotary_pos_emb is not None:
        out.update(_rotary_options(stack.rotary_pos_emb))
    usual = "rel_pos_bias" in out or "rotary_pos_emb" in out
    if stack.disable_abs_pos_emb != usual:
        out["disable_abs_pos_emb"] = stack.disable_abs_pos_emb
    own = [x.core for x in layers if x.kind == "a"]
    if own and own[0].rotate_num_heads != own[0].heads and not _there("to_rotateable_k")(own[0]):
        out["rotate_num_heads"] = own[0].rotate_num_heads
    return out


def _order_options(stack: Any, layers: List[Layer]) -> Dict[str, Any]:
    """Which sublayers there are, in the words that the library itself has for it."""
    kinds = tuple(stack.layer_types)
    macaron = any(x.wrap(xt.Scale) is not None for x in layers)
    only = stack.cross_attend and "a" not in kinds
    block = ("c", "f") if only else ("a", "c", "f") if stack.cross_attend else ("a", "f")
    block = ("f", *block) if macaron else block
    out: Dict[str, Any] = {"macaron": True} if macaron else {}
    if stack.cross_attend:
        out["cross_attend"] = True
        if only and not isinstance(stack, x_transformers.CrossAttender):
            out["only_cross"] = True
    order, plain = tuple(stack.layers_execute_order), tuple(range(len(kinds)))
    n, rest = divmod(len(kinds), len(block))
    if kinds == block and order == plain * (len(order) // len(plain)) and order != plain:
        return {**out, "depth": len(order) // len(plain), "weight_tie_layers": True}
    if rest == 0 and kinds == block * n:
        out["depth"] = n
    else:
        out["custom_layers"] = list(kinds)
    return out if order == plain else {**out, "layers_execute_order": list(order)}


def _residual_options(layers: List[Layer]) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    residual = layers[0].residual
    if isinstance(residual, xt.GRUGating):
        out["gate_residual"] = True
    elif not isinstance(residual, (xt.Residual, xt.HyperConnection)):
        raise InvalidValue("xt: dra knows no residual %s" % type(residual).__name__)
    if getattr(residual, "residual_scale", None) is not None:
        out["scale_residual"] = True
    if getattr(residual, "scale_residual_constant", 1.) != 1.:
        out["scale_residual_constant"] = residual.scale_residual_constant
    if layers[0].wrap(xt.LayerScale) is not None:
        out["use_layerscale"] = True
    return out


def _same_or_list(values: List[Any]) -> Any:
    return values[0] if len(set(values)) == 1 else values


def stack_options(stack: Any) -> Dict[str, Any]:
    """Options of a Decoder, Encoder, PrefixDecoder or CrossAttender."""
    layers = _layers(stack)
    kind = type(stack).__name__
    if kind not in ("Decoder", "Encoder", "PrefixDecoder", "CrossAttender"):
        kind = "Decoder" if stack.causal else "Encoder"
    attention = next(x for x in layers if x.kind in "ac")
    out: Dict[str, Any] = {"type": kind, "dim": stack.dim, "heads": attention.core.heads}
    out.update(_order_options(stack, layers))
    out.update(_found(STACK, stack))
    for part in (_norm_options(layers), _condition_options(stack, layers),
                 _position_options(stack, layers), _residual_options(layers)):
        out.update(part)
    if stack.add_value_residual and not any(
            isinstance(x.core.to_value_residual_mix, nn.Module) for x in layers if x.kind == "a"):
        out["learned_value_residual_mix"] = False
    shift, drop = (_same_or_list(list(x)) for x in ((s.shift for s in layers),
                                                    stack.layer_dropouts))
    out.update({k: v for k, v in (("shift_tokens", shift), ("layer_dropout", drop)) if v})
    own = _of_kind(layers, "a" if any(x.kind == "a" for x in layers) else "c", ATTENTION, "attn_")
    out.update(own)
    out.update(_of_kind(layers, "f", FEED_FORWARD, "ff_"))
    cross = _of_kind(layers, "c", ATTENTION, "attn_")
    if any(x.kind == "a" for x in layers) and cross:
        usual = {"attn_" + o.name: o.usual for o in ATTENTION}
        out.update({"cross_" + k: cross.get(k, usual[k]) for k in {**own, **cross}
                    if cross.get(k) != own.get(k) and k != "attn_max_attend_past"})
    for x in layers:
        if x.kind == "c" and x.core.to_k.weight.shape[1] != stack.dim:
            out["cross_attn_dim_context"] = x.core.to_k.weight.shape[1]
    return out


# ---- wrappers ------------------------------------------------------------------------------------

def _learned_positions(w: Any) -> bool:
    if isinstance(w.pos_emb, xt.ScaledSinusoidalEmbedding):
        raise InvalidValue("xt: scaled_sinu_pos_emb: dra does not have it yet")
    return isinstance(w.pos_emb, xt.AbsolutePositionalEmbedding)


#: What wrappers around a stack have in common.
COMMON = (
    Option("emb_dropout", 0., lambda w: w.emb_dropout.p),
    Option("post_emb_norm", False, lambda w: isinstance(getattr(w, "post_emb_norm", None),
                                                        xt.LayerNorm)),
    Option("num_memory_tokens", 0, lambda w: len(w.memory_tokens) if _there("memory_tokens")(w)
           else 0),
    Option("use_abs_pos_emb", True, lambda w: _learned_positions(w) or
           w.attn_layers.disable_abs_pos_emb),
    Option("max_mem_len", 0, lambda w: getattr(w, "max_mem_len", 0)),
)

TOKENS = (
    Option("emb_dim", None, lambda w: w.emb_dim if w.emb_dim != w.attn_layers.dim else None),
    _kept("l2norm_embed", False), _kept("shift_mem_down", 0), _kept("average_pool_embed", False),
    Option("tie_embedding", False, lambda w: w.to_logits is not None and
           not isinstance(w.to_logits, nn.Module)),
    Option("return_only_embed", False, lambda w: w.to_logits is None),
    Option("use_cls_token", False, _there("cls_token")), _kept("num_cls_tokens", 1),
    Option("logits_dim", None, lambda w: w.to_logits.weight.shape[0] if isinstance(
        w.to_logits, nn.Linear) and w.to_logits.weight.shape[0] != w.num_tokens else None),
    _kept("sigsoftmax_logits", False),
    Option("mixture_of_softmax", False, _there("to_mixture")),
    Option("mixture_of_softmax_k", 4, lambda w: w.combine_mixture.weight.shape[0]
           if _there("combine_mixture")(w) else 4),
    _kept("recycling", False), _kept("memory_tokens_interspersed_every", None),
    Option("num_output_heads", 1, lambda w: len(w.to_logits)
           if isinstance(w.to_logits, nn.ModuleList) else 1),
    Option("embed_num_tokens", None, lambda w: {k: e.num_embeddings for k, e in w.embeds.items()}
           if _there("embeds")(w) else None),
)


def _width(x: Any, axis: int) -> Optional[int]:
    return x.weight.shape[axis] if isinstance(x, nn.Linear) else None


def _of_tokens(w: Any) -> Dict[str, Any]:
    return {"num_tokens": w.num_tokens, "max_seq_len": w.max_seq_len, **_found(COMMON, w),
            **_found(TOKENS, w), "attn_layers": stack_options(w.attn_layers)}


def _of_vectors(w: Any) -> Dict[str, Any]:
    dims = {"dim_in": _width(w.project_in, 1), "dim_out": _width(w.project_out, 0)}
    return {**{k: v for k, v in dims.items() if v}, "max_seq_len": w.max_seq_len,
            **_found(COMMON, w), **_found((_kept("average_pool_embed", False),), w),
            "attn_layers": stack_options(w.attn_layers)}


def _of_numbers(w: Any) -> Dict[str, Any]:
    tied = Option("tie_embedding", False, lambda w: not isinstance(w.to_logits, nn.Module))
    return {"num_tokens": w.token_emb.emb.num_embeddings, "max_seq_len": w.max_seq_len,
            "numerical_token_id": w.numerical_token_id, **_found(COMMON, w), **_found((tied,), w),
            "attn_layers": stack_options(w.attn_layers)}


def _of_images(w: Any) -> Dict[str, Any]:
    patches, patch = w.pos_embedding.shape[1], w.patch_size
    out = {"image_size": round(patches ** 0.5) * patch, "patch_size": patch,
           "channels": w.patch_to_embedding[1].weight.shape[1] // patch ** 2}
    classes = {"num_classes": _width(w.mlp_head, 0), "emb_dropout": w.dropout.p,
               "num_register_tokens": len(w.register_tokens) if w.has_register_tokens else 0,
               "post_emb_norm": isinstance(w.post_emb_norm, xt.LayerNorm)}
    return {**out, **{k: v for k, v in classes.items() if v},
            "attn_layers": stack_options(w.attn_layers)}


#: Options of a side of an XTransformer that its wrapper has.
SIDE = ("num_tokens", "max_seq_len", "emb_dropout", "use_abs_pos_emb", "num_memory_tokens")


def _of_pair(w: Any) -> Dict[str, Any]:
    out: Dict[str, Any] = {"dim": w.encoder.attn_layers.dim}
    decoder = w.decoder.net
    for prefix, side in (("enc_", w.encoder), ("dec_", decoder)):
        options = _of_tokens(side)
        stack = options.pop("attn_layers")
        for name in ("type", "dim", "cross_attend"):
            stack.pop(name, None)
        own = {k: v for k, v in options.items() if k in SIDE}
        others = sorted(set(options) - set(own) - {"return_only_embed"})
        if others:
            raise InvalidValue("xt: %s of an XTransformer: %s" % (prefix, ", ".join(others)))
        out.update({prefix + k: v for k, v in {**own, **stack}.items()})
    if decoder.token_emb is w.encoder.token_emb:
        out["tie_token_emb"] = True
    return out


WRAPPERS: Dict[type, Callable[[Any], Dict[str, Any]]] = {
    xt.TransformerWrapper: _of_tokens, continuous.ContinuousTransformerWrapper: _of_vectors,
    xval.XValTransformerWrapper: _of_numbers, xt.ViTransformerWrapper: _of_images,
    xt.XTransformer: _of_pair}

LOSSES = ("AutoregressiveWrapper", "XLAutoregressiveWrapper", "ContinuousAutoregressiveWrapper",
          "XValAutoregressiveWrapper", "NonAutoregressiveWrapper")


def options_of(module: nn.Module) -> Dict[str, Any]:
    """The options that a module was made with, as a config.json of dra has them."""
    name = type(module).__name__
    out: Dict[str, Any] = {"model_type": "x-transformers", "wrapper": name}
    version = tuple(int(n) for n in metadata.version("x-transformers").split(".")[:3])
    if version > FIRST_RELEASE:
        out["release"] = "N"
    if name in LOSSES:
        net = options_of(module.net)
        out["net"] = {k: v for k, v in net.items() if k not in ("model_type", "release")}
        if name == "NonAutoregressiveWrapper":
            out["mask_id"] = module.mask_id
        return out
    for kind, find in WRAPPERS.items():
        if isinstance(module, kind):
            return {**out, "wrapper": kind.__name__, **find(module)}
    if isinstance(module, xt.AttentionLayers):
        options = stack_options(module)
        kind = options.pop("type")
        return {**out, "wrapper": kind, **{k: v for k, v in options.items()
                                           if kind != "CrossAttender" or k != "cross_attend"}}
    raise InvalidValue("xt: expected a module of x-transformers, found %s; dra has %s" % (
        name, ", ".join([*(k.__name__ for k in WRAPPERS), *LOSSES])))


# ---- from a module -------------------------------------------------------------------------------

_DTYPES = {torch.float32: _c.DRA_F32, torch.float16: _c.DRA_F16, torch.bfloat16: _c.DRA_BF16}


def _write_weights(tensors: Mapping[str, Tensor], path: str) -> None:
    """A safetensors file from where the numbers are."""
    lent, items = Lent(), (_c.dra_tensor_item * len(tensors))()
    for item, (name, tensor) in zip(items, tensors.items()):
        dense = lent.keep(tensor.detach().to("cpu").contiguous())
        if dense.dtype not in _DTYPES:
            raise InvalidValue("xt: %s is %s, expected float32, float16 or bfloat16" %
                               (name, dense.dtype))
        item.name, item.dtype, item.data = name.encode(), _DTYPES[dense.dtype], dense.data_ptr()
        item.shape.rank = dense.ndim
        for k, n in enumerate(dense.shape):
            item.shape.dim[k] = n
    call(lib.dra_tensors_write, path_bytes(path), items, len(items), None, 0)


def from_module(module: nn.Module, *, check: bool = True,
                options: Optional[Mapping[str, Any]] = None, **how: Any) -> Model:
    """A model of dra with the options and weights of a module of x-transformers. `options` change
    those that were found, by the names of `options_of()`; `how` is that of `dra.load()`. With
    `check`, both read drawn inputs, and outputs that differ are an error."""
    config = options_of(module)
    for name, value in (options or {}).items():
        config[name] = {**config[name], **value} if isinstance(value, Mapping) else value
    with tempfile.TemporaryDirectory(prefix="dra-") as folder:
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        _write_weights(module.state_dict(), os.path.join(folder, "model.safetensors"))
        model = load(folder, **how)
    model._path, model._title = None, type(module).__name__
    if check:
        check_outputs(model, module)
    return model


# ---- what both put out ---------------------------------------------------------------------------

@contextlib.contextmanager
def _still(module: nn.Module) -> Iterator[None]:
    """Without dropout and without gradients."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train(training)


def _draw(model: Model, tokens: int) -> Dict[str, np.ndarray]:
    """Inputs of two rows."""
    rng, out = np.random.default_rng(0), {}
    for name, shape in model.inputs.items():
        size = [2, *(tokens if n < 0 else n for n in shape)]
        vocab = model._reads[name]
        out[name] = (rng.integers(0, vocab, size, np.int32) if vocab else
                     rng.standard_normal(size, np.float32))
    return out


def _run(module: Any, inputs: Mapping[str, np.ndarray]) -> Any:
    """What a module makes of the inputs of a model."""
    given = {k: torch.from_numpy(x).to(next(module.parameters()).device) for k, x in inputs.items()}
    ids = {k: x.long() if x.dtype == torch.int32 else x for k, x in given.items()}
    if isinstance(module, xt.XTransformer):
        context = module.encoder(ids["src"], return_embeddings=True)
        return module.decoder.net(ids["ids"], context=context)
    more = {k: ids[k] for k in ("condition", "context") if k in ids}
    main = [ids[k] for k in ("ids", "nums", "x", "img") if k in ids]
    return module(*main, **more)


def check_outputs(model: Model, module: nn.Module, tolerance: float = 1e-4) -> float:
    """The largest difference of outputs for drawn inputs, over the largest number."""
    net = module.net if type(module).__name__ in LOSSES else module
    room = getattr(net, "max_seq_len", 0) or getattr(getattr(net, "decoder", net), "max_seq_len", 0)
    inputs = _draw(model, min(room or 12, 12))
    with _still(net):
        theirs = _run(net, inputs)
    theirs = theirs if isinstance(theirs, tuple) else (theirs,)
    found = model.forward(inputs)
    names = [n for n in ("logits", "out") if n in found] or ["hidden"]
    worst = 0.
    for name, x in zip([*names, *(["numbers"] if "numbers" in found else [])], theirs):
        expected = x.float().cpu().numpy()
        got = found[name].reshape(expected.shape) if found[name].size == x.numel() else found[name]
        if got.shape != expected.shape:
            raise InvalidValue("xt: %s has shape %s, the module's %s" % (
                name, got.shape, expected.shape))
        if name == "logits" and getattr(net, "output_is_log_prob", False):
            got = got - got.max(-1, keepdims=True)
            got = got - np.log(np.exp(got).sum(-1, keepdims=True))
        worst = max(worst, float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30)))
    if not worst <= tolerance:
        raise InvalidValue("xt: the module and dra differ by %.2g of the largest number, expected "
                           "%.2g: an option was not found; options={...} says it" %
                           (worst, tolerance))
    return worst


# ---- to a module ---------------------------------------------------------------------------------

def _make(config: Dict[str, Any]) -> nn.Module:
    options = {k: v for k, v in config.items() if k not in ("model_type", "wrapper", "release")}
    kind = config["wrapper"]
    for own in ("context", "src_prepend"):
        if own in options:
            raise InvalidValue("xt: %s is composed in Python: its parts are modules" % own)
    if "net" in options:
        options["net"] = _make({"wrapper": "TransformerWrapper", **options["net"]})
    stack = options.get("attn_layers")
    if stack is not None:
        words = _stack_words(stack)
        options["attn_layers"] = getattr(x_transformers, words.pop("type", "Decoder"))(**words)
    elif kind in ("Decoder", "Encoder", "CrossAttender"):
        options = _stack_words(options)
    return getattr(x_transformers, kind)(**options)


def _stack_words(stack: Mapping[str, Any]) -> Dict[str, Any]:
    tuples = ("custom_layers", "layers_execute_order", "shift_tokens", "layer_dropout")
    return {k: tuple(v) if k in tuples and isinstance(v, (list, str)) else v
            for k, v in stack.items()}


def _read_weights(path: str) -> Dict[str, Tensor]:
    with open(path, "rb") as f:
        data = f.read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    out = {}
    for name, row in header.items():
        if name != "__metadata__":
            first, last = (8 + size + n for n in row["data_offsets"])
            out[name] = torch.from_numpy(np.frombuffer(data[first:last], np.float32).copy())
            out[name] = out[name].reshape(row["shape"])
    return out


def to_module(model: Model) -> nn.Module:
    """A module of x-transformers with the options and weights of a model, in evaluation mode. A
    model that the library cannot make is an error that says why."""
    with tempfile.TemporaryDirectory(prefix="dra-") as folder:
        target = os.path.join(folder, "model")
        model.save(target, format="x-transformers")
        with open(os.path.join(target, "config.json")) as f:
            config = json.load(f)
        try:
            module = _make(config)
            module.load_state_dict(_read_weights(os.path.join(target, "model.safetensors")))
        except (TypeError, AssertionError, AttributeError, RuntimeError) as e:
            raise InvalidValue("xt: x-transformers %s cannot make this model: %s" % (
                metadata.version("x-transformers"), e)) from None
    return module.eval()
