"""Adapters of LoRA against Hugging Face's PEFT, in both directions, on random tiny models.

    lora.py DRA [COUNT [FAMILY...]]

For COUNT configs of each family (5, seeded): an adapter that `dra train --lora` writes is loaded by
PEFT on transformers' model and gives the same logits, and those of the model that `dra convert`
merges; one that PEFT writes, with ranks and alphas of its own for some modules, gives the same in
dra. Prints the largest differences of logits relative to the largest; exits with 1 when one is over its bar.
"""

import os
import random
import sys
import tempfile

try:
    import peft
    import torch
    import transformers
    from side import Side
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as missing:
    print(f"lora   skipped: {missing}")
    sys.exit(0)

BAR = {"plain": 2e-5, "hybrid": 2e-3}  # as in llama_models.py: norms of heads amplify rounding
VOCAB = 256  # bytes, so that dra trains on a text
BODY = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
             linear_value_head_dim=8, linear_conv_kernel_dim=4,
             layer_types=["linear_attention"] * 3 + ["full_attention"])
# olmo_hybrid: transformers 5.23 saves its convolutions in equal parts, right for equal widths.
# mamba2: PEFT refuses out_proj.
FAMILIES = {  # keys of a config; modules whose names PEFT gets
    "gpt2": (dict(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=128,
                  resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0), ["c_attn", "c_proj", "c_fc"]),
    "llama": (BODY, ["q_proj", "v_proj", "down_proj"]),
    "qwen3": (dict(BODY, head_dim=8), ["q_proj", "k_proj", "gate_proj"]),
    "qwen3_5_text": (dict(BODY, **DELTA, head_dim=16),
                     ["in_proj_qkv", "in_proj_z", "out_proj", "q_proj", "up_proj"]),
    "olmo_hybrid": (dict(BODY, **DELTA | {"linear_num_key_heads": 4, "num_key_value_heads": 4}),
                    ["q_proj", "k_proj", "o_proj", "up_proj"]),
    "mamba2": (dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8,
                    state_size=16, n_groups=1, expand=2, conv_kernel=4), ["in_proj"]),
    "granitemoehybrid": (dict(BODY, shared_intermediate_size=48, mamba_n_heads=8, mamba_d_head=8,
                              mamba_d_state=16, mamba_n_groups=1, mamba_d_conv=4, mamba_expand=2,
                              num_local_experts=0, num_experts_per_tok=0,
                              position_embedding_type="nope",
                              layer_types=["mamba", "mamba", "attention", "mamba"]),
                         ["in_proj", "out_proj", "q_proj", "input_linear"]),
}
TARGETS = {"mamba2": "q,k,v,g"}
HYBRID = {"qwen3_5_text", "olmo_hybrid", "mamba2", "granitemoehybrid"}


def logits_of(model, ids):
    model.eval()
    with torch.no_grad():
        return model(input_ids=ids[None]).logits[0]


def apart(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def ours(dra, family, base, work, ids, rng):
    """What `dra train` writes: PEFT's logits, and those of the merged model."""
    text, out = f"{work}/text", f"{work}/ours"
    with open(text, "w") as file:
        file.writelines(f"row {i % 9} says hello to {rng.randint(1, 99)}\n" for i in range(200))
    side = Side(dra, out, work)
    targets = TARGETS.get(family, "all")
    side.call("train", "--model", base, "--lora", f"r={rng.randint(1, 5)},alpha=3,targets={targets}",
              "--data", text, "--tokenizer", "bytes", "--steps", "10", "--batch", "4", "--context",
              "32", "--lr", "0.02", "--sample-every", "0", "--out", out)
    theirs = logits_of(peft.PeftModel.from_pretrained(load(base), out), ids)
    side.call("convert", "--from", out, "--to", f"{work}/merged", "--as", "hf")
    changed = apart(theirs, logits_of(load(base), ids))
    if changed < 1e-3:
        raise RuntimeError(f"the adapter changes logits by {changed} only")
    found = side.forward(ids)["logits"]
    return max(apart(found, theirs), apart(found, logits_of(load(f"{work}/merged"), ids)))


def theirs(dra, base, work, ids, rng, modules):
    """What PEFT writes, with Bs that are not 0."""
    first = modules[0]
    config = peft.LoraConfig(r=3, lora_alpha=rng.choice([2, 5]), target_modules=modules,
                             use_rslora=rng.random() < 0.5, rank_pattern={first: 2},
                             alpha_pattern={first: 7}, task_type="CAUSAL_LM",
                             fan_in_fan_out="c_attn" in modules)
    model = peft.get_peft_model(load(base), config)
    for name, p in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.1)
    expected = logits_of(model, ids)
    model.save_pretrained(f"{work}/theirs")
    return apart(Side(dra, f"{work}/theirs", work).forward(ids)["logits"], expected)


def compare(dra, family, seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    keys, modules = FAMILIES[family]
    keys = dict(keys, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    with tempfile.TemporaryDirectory() as work:
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **keys))
        base = f"{work}/base"
        model.float().save_pretrained(base)
        ids = torch.tensor([rng.randrange(VOCAB) for _ in range(40)])
        return ours(dra, family, base, work, ids, rng), theirs(dra, base, work, ids, rng, modules)


def main():
    dra, count = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    families = sys.argv[3:] or list(FAMILIES)
    print(f"lora   peft {peft.__version__}, transformers {transformers.__version__}: logits")
    good = True
    for family in families:
        found = [compare(dra, family, seed) for seed in range(count)]
        bar = BAR["hybrid" if family in HYBRID else "plain"]
        worst = [max(column) for column in zip(*found)]
        good &= max(worst) <= bar
        print(f"  {family:20} ours in PEFT {worst[0]:.1e}   PEFT's here {worst[1]:.1e}"
              f"   {'ok' if max(worst) <= bar else f'over {bar:g}'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
