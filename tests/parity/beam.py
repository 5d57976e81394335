"""Makes tests/data/xt-search: a tiny decoder and a tinier amateur, in the folder format
"x-transformers", and what the library writes with them: beams with their scores, without its cache,
which it does not reorder with its beams, and a text by contrastive decoding.

    $ python tests/parity/beam.py tests/data/xt-search
"""
import json
import sys

import torch

import x_models

PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]]
TOKENS = 8


def config_of(release, **sizes):
    return {"model_type": "x-transformers", "wrapper": "TransformerWrapper", "num_tokens": 19,
            "max_seq_len": 24, "release": release,
            "attn_layers": {"type": "Decoder", "attn_dim_head": 8, **sizes}}


def wrapped(release, model, config):
    """The same parameters in another release of the library."""
    config = {**config, "release": release}
    again = x_models.in_double(x_models.build(config))
    again.load_state_dict(model.state_dict())
    return x_models.library(release).AutoregressiveWrapper(again)


def beams_of(wrapper, beams):
    out, scores = wrapper.beam_search(torch.tensor(PROMPTS), TOKENS, beams=beams, cache_kv=False,
                                      return_beams_and_scores=True)
    return {"beams": beams, "tokens": out.transpose(0, 1).tolist(),
            "scores": scores.double().transpose(0, 1).tolist()}


def main(folder):
    sizes = {"expert": {"dim": 16, "depth": 2, "heads": 2}, "amateur": {"dim": 8, "depth": 1, "heads": 1}}
    configs = {name: config_of("E", **s) for name, s in sizes.items()}
    models = {name: x_models.make(c, 7) for name, c in configs.items()}
    for name, model in models.items():
        with torch.no_grad():  # likely tokens become likelier
            model.to_logits.weight.mul_(2).copy_(model.to_logits.weight.float())
        x_models.save(model, configs[name], f"{folder}/{name}", torch.float32)
    search = wrapped("N", models["expert"], configs["expert"])
    writer = wrapped("E", models["expert"], configs["expert"])
    contrast = writer.generate(torch.tensor(PROMPTS), TOKENS, temperature=0.0,
                               amateur_model=models["amateur"], cache_kv=False)
    alone = writer.generate(torch.tensor(PROMPTS), TOKENS, temperature=0.0, cache_kv=False)
    with open(f"{folder}/expected.json", "w") as f:
        json.dump({"prompts": PROMPTS, "contrast": contrast.tolist(), "greedy": alone.tolist(),
                   "searches": [beams_of(search, n) for n in (1, 3, 7)]}, f)


if __name__ == "__main__":
    main(sys.argv[1])
