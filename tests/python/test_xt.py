"""dra.xt: live modules of x-transformers become models of dra with the same outputs, and back."""
import json
import os
import unittest

import numpy as np

import dra
from common import Case, run_command, small

try:
    import torch
    import x_transformers as X
    import dra.xt as B
    from loguru import logger  # x_transformers' own
    logger.disable("x_transformers")
except ImportError:
    X = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONFIGS = os.path.join(ROOT, "examples", "x-transformers")


def wrapped(stack=None, kind="Decoder", **options):
    layers = getattr(X, kind)(**{"dim": 64, "depth": 2, "heads": 4, "attn_dim_head": 16,
                                 **(stack or {})})
    return X.TransformerWrapper(**{"num_tokens": 40, "max_seq_len": 32, **options},
                                attn_layers=layers)


def shaken(module):
    """Every parameter away from where it starts, so that all of them matter."""
    torch.manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            p += 0.1 * torch.randn_like(p) * (p.abs().mean() + 0.5)
    return module.eval()


@unittest.skipIf(X is None, "no x-transformers")
class Modules(Case):
    def there_and_back(self, module, what=""):
        """The module, a model of it, and a module of that put out the same."""
        shaken(module)
        m = B.from_module(module)
        self.assertLess(B.check_outputs(m, module), 1e-4, what)
        again = B.to_module(m)
        self.assertIs(type(again), type(module))
        for (name, a), (other, b) in zip(sorted(module.state_dict().items()),
                                         sorted(again.state_dict().items())):
            self.assertEqual(name, other, what)
            self.near(b.numpy(), a.numpy(), 1e-6, "%s: %s" % (what, name))
        self.assertLess(B.check_outputs(m, again), 1e-4, what)
        return m

    #: Options of stacks, each of which changes what comes out.
    STACKS = [
        {}, {"use_scalenorm": True}, {"use_rmsnorm": True}, {"use_simple_rmsnorm": True},
        {"use_dynamic_tanh": True}, {"norm_add_unit_offset": False}, {"pre_norm": False},
        {"sandwich_norm": True}, {"gate_residual": True}, {"scale_residual": True},
        {"scale_residual_constant": 0.7}, {"macaron": True}, {"sandwich_coef": 1},
        {"weight_tie_layers": True}, {"custom_layers": ("a", "f", "f", "a"), "depth": None},
        {"custom_layers": ("a", "f"), "layers_execute_order": (0, 1, 0), "depth": None},
        {"shift_tokens": 1}, {"shift_tokens": (1, 0, 2, 0)}, {"layer_dropout": 0.1},
        {"residual_attn": True}, {"rel_pos_bias": True},
        {"rel_pos_bias": True, "rel_pos_num_buckets": 16, "rel_pos_max_distance": 64},
        {"dynamic_pos_bias": True, "dynamic_pos_bias_log_distance": True},
        {"dynamic_pos_bias": True, "dynamic_pos_bias_mlp_depth": 3}, {"alibi_pos_bias": True},
        {"alibi_pos_bias": True, "alibi_num_heads": 2}, {"rotary_pos_emb": True},
        {"rotary_pos_emb": True, "rotary_emb_dim": 12, "rotary_interpolation_factor": 2.},
        {"rotary_xpos": True, "rotary_xpos_scale_base": 64},
        {"rotary_pos_emb": True, "rotate_num_heads": 2}, {"disable_abs_pos_emb": True},
        {"attn_flash": True}, {"attn_dim_head": 24}, {"attn_dropout": 0.1},
        {"attn_one_kv_head": True}, {"attn_kv_heads": 2}, {"attn_num_mem_kv": 3},
        {"attn_sparse_topk": 3}, {"attn_hard": True}, {"attn_pre_talking_heads": True},
        {"attn_post_talking_heads": True}, {"attn_on_attn": True}, {"attn_gate_values": True},
        {"attn_gate_values": True, "attn_swiglu_values": True}, {"attn_gate_value_heads": True},
        {"attn_head_scale": True}, {"attn_qk_norm": True},
        {"attn_qk_norm": True, "attn_qk_norm_groups": 4, "attn_qk_norm_scale": 5},
        {"attn_qk_norm": True, "attn_qk_norm_dim_scale": True}, {"ff_mult": 2}, {"ff_glu": True},
        {"ff_glu": True, "ff_glu_mult_bias": True}, {"ff_swish": True}, {"ff_relu_squared": True},
        {"ff_no_bias": True}, {"ff_post_act_ln": True}, {"ff_dropout": 0.1},
        {"attn_softclamp_logits": True, "attn_logit_softclamp_value": 20.},
        {"attn_data_dependent_alibi": True}, {"attn_use_latent_kv": True, "attn_dim_latent_kv": 20},
        {"attn_use_latent_q": True, "attn_dim_latent_q": 24}, {"attn_l2_distance": True},
        {"attn_laser": True}, {"attn_max_attend_past": 5}, {"attn_use_cope": True},
        {"attn_sigmoid": True}, {"attn_add_zero_kv": True}, {"add_value_residual": True},
        {"add_value_residual": True, "learned_value_residual_mix": False},
        {"num_residual_streams": 3}, {"use_layerscale": True}, {"softclamp_output": True},
        {"softclamp_output": True, "softclamp_output_value": 3.}, {"unet_skips": True},
        {"reinject_input": True}, {"reinject_input": True, "learned_reinject_input_gate": True},
        {"use_adaptive_layernorm": True}, {"use_adaptive_rmsnorm": True, "dim_condition": 20},
        {"use_adaptive_layerscale": True, "adaptive_condition_mlp": True},
    ]

    def test_stacks(self):
        for stack in self.STACKS:
            with self.subTest(stack=stack):
                self.there_and_back(wrapped(stack), stack)

    def test_wrappers(self):
        for options in ({"emb_dim": 24}, {"l2norm_embed": True}, {"post_emb_norm": True},
                        {"num_memory_tokens": 3}, {"use_abs_pos_emb": False},
                        {"tie_embedding": True}, {"emb_dropout": 0.1},
                        {"max_mem_len": 8}, {"sigsoftmax_logits": True},
                        {"mixture_of_softmax": True, "mixture_of_softmax_k": 3}):
            with self.subTest(options=options):
                self.there_and_back(wrapped(**options), options)
        for options in ({}, {"average_pool_embed": True, "logits_dim": 5},
                        {"use_cls_token": True, "logits_dim": 5}):
            with self.subTest(encoder=options):
                self.there_and_back(wrapped(kind="Encoder", **options), options)

    def test_other_models(self):
        stack = dict(dim=64, depth=2, heads=4, attn_dim_head=16)
        made = {
            "loss": X.AutoregressiveWrapper(wrapped()),
            "xl": X.XLAutoregressiveWrapper(wrapped(max_mem_len=8)),
            "masked": X.NonAutoregressiveWrapper(wrapped(kind="Encoder"), mask_id=39),
            "vectors": X.ContinuousTransformerWrapper(
                dim_in=10, dim_out=6, max_seq_len=32, attn_layers=X.Decoder(**stack)),
            "series": X.ContinuousAutoregressiveWrapper(X.ContinuousTransformerWrapper(
                dim_in=10, dim_out=10, max_seq_len=32, attn_layers=X.Decoder(**stack))),
            "numbers": X.XValTransformerWrapper(num_tokens=20, numerical_token_id=3,
                                                max_seq_len=32, attn_layers=X.Decoder(**stack)),
            "images": X.ViTransformerWrapper(image_size=16, patch_size=4, num_classes=7,
                                             channels=2, attn_layers=X.Encoder(**stack)),
            "registers": X.ViTransformerWrapper(image_size=16, patch_size=4, num_classes=7,
                                                num_register_tokens=2,
                                                attn_layers=X.Encoder(**stack)),
            "decoder": X.Decoder(**stack), "encoder": X.Encoder(**stack),
            "cross": X.CrossAttender(dim=64, depth=2, heads=4, attn_dim_head=16),
            "pair": X.XTransformer(
                dim=64, enc_num_tokens=30, enc_max_seq_len=32, enc_depth=2, enc_heads=4,
                enc_attn_dim_head=16, enc_num_memory_tokens=2, dec_num_tokens=40,
                dec_max_seq_len=32, dec_depth=1, dec_heads=2, dec_attn_dim_head=16,
                dec_rotary_pos_emb=True, dec_cross_attn_kv_heads=1),
            "tied": X.XTransformer(
                dim=64, enc_num_tokens=30, enc_max_seq_len=32, enc_depth=1, dec_num_tokens=30,
                dec_max_seq_len=32, dec_depth=1, tie_token_emb=True),
            "captions": wrapped({"cross_attend": True, "cross_attn_dim_context": 24}),
        }
        for name, module in made.items():
            with self.subTest(model=name):
                self.there_and_back(module, name)

    def test_examples(self):
        """The configs of the library's README, made by the library itself."""
        done = 0
        for name in sorted(os.listdir(CONFIGS)):
            with open(os.path.join(CONFIGS, name)) as f:
                config = json.load(f)
            text = json.dumps(config)
            if any(w in text for w in ('"N"', '"context"', '"src_prepend"', "resi_dual")):
                continue  # of later releases, or composed in Python
            with self.subTest(config=name):
                folder = self.folder() + "/m"
                run_command("init", "--config", os.path.join(CONFIGS, name), "--out", folder)
                m = dra.load(folder)
                again = B.from_module(B.to_module(m))
                self.assertEqual(set(again.parameters), set(m.parameters))
                for key, x in m.parameters.items():
                    self.near(again.parameters[key], x, 1e-6, key)
                done += 1
        self.assertGreater(done, 50)

    def test_half(self):
        module = shaken(wrapped()).to(torch.bfloat16)
        self.assertLess(B.check_outputs(B.from_module(module, check=False), module, 0.1), 0.1)

    def test_writes_on(self):
        m = B.from_module(shaken(wrapped()))
        ids = m.generate([1, 2, 3], tokens=5, temperature=0, ignore_end=True)
        module = B.to_module(m)
        seen = torch.tensor([[1, 2, 3]])
        for token in ids:
            with torch.no_grad():
                best = int(module(seen)[0, -1].argmax())
            self.assertEqual(int(token), best)
            seen = torch.cat([seen, torch.tensor([[best]])], 1)
        m.save(self.folder() + "/m")

    def test_refused(self):
        self.refuses(ValueError, "expected a module|Linear", B.from_module, torch.nn.Linear(3, 3))
        self.refuses(ValueError, "", B.from_module, wrapped({
            "attn_use_cope": True, "attn_cope_talking_heads": True}))
        self.refuses(ValueError, "scaled_sinu", B.from_module, wrapped(scaled_sinu_pos_emb=True))
        self.refuses(ValueError, "rotary_base", B.from_module, wrapped(
            {"rotary_pos_emb": True, "rotary_base_rescale_factor": 2.}))
        odd = shaken(wrapped())
        odd.attn_layers.layers[0][1].attend.scale *= 2  # no option says this
        self.refuses(ValueError, "differ by", B.from_module, odd)
        self.refuses(ValueError, "", B.to_module, small("dra-delta-tiny"))
        mixed = wrapped()
        mixed.attn_layers.layers[1][1].ff[0][1] = torch.nn.SiLU()
        self.refuses(ValueError, "ff_options of layers differ", B.from_module, mixed)


if __name__ == "__main__":
    unittest.main()
