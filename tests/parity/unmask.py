"""Makes tests/data/xt-unmask: a tiny encoder inside NonAutoregressiveWrapper, in the folder format
"x-transformers", and the texts that the library writes with it, greedily, by unmasking. It adds
Gumbel noise even at temperature 0 (a thousandth of it), so texts are kept only where other noise
leads to the same ones.

    $ python tests/parity/unmask.py tests/data/xt-unmask
"""
import json
import sys

import torch

import x_models

VOCAB, LENGTH, MASK = 19, 16, 7


def config_of():
    net = {"wrapper": "TransformerWrapper", "num_tokens": VOCAB, "max_seq_len": LENGTH,
           "attn_layers": {"type": "Encoder", "dim": 16, "depth": 2, "heads": 2,
                           "attn_dim_head": 8}}
    return {"model_type": "x-transformers", "wrapper": "NonAutoregressiveWrapper", "net": net,
            "mask_id": MASK}


def text_of(model, schedule, steps):
    """The text of one schedule; None: the noise decides, or the mask token is in it."""
    lib = x_models.library("E")
    wrapper = lib.NonAutoregressiveWrapper(model.net, mask_id=MASK, schedule=schedule, steps=steps)
    texts = []
    for seed in range(20):
        torch.manual_seed(seed)
        texts.append(wrapper.generate(start_temperature=0.0, filter_thres=None).tolist())
    return texts[0] if all(t == texts[0] for t in texts) and MASK not in texts[0] else None


def main(folder):
    config = config_of()
    cases = [(s, n) for s in ("linear", "cosine") for n in (1, 4, 8, 16)]
    for seed in range(1000):
        model = x_models.make(config, seed)
        with torch.no_grad():  # likely tokens become likelier, and tokens that are near matter
            model.net.to_logits.weight.mul_(3).copy_(model.net.to_logits.weight.float())
        texts = [text_of(model, *case) for case in cases]
        if all(texts) and len({tuple(t) for t in texts}) >= 4 and len(set(texts[2])) > 4:
            break
    x_models.save(model, config, f"{folder}", torch.float32)
    rows = [{"schedule": s, "steps": n, "tokens": t} for (s, n), t in zip(cases, texts)]
    with open(f"{folder}/expected.json", "w") as f:
        json.dump({"texts": rows}, f)
    print(seed, *texts, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
