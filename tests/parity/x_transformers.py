"""Models against x-transformers, feature by feature (numbers as in the order of its README) and in
random combinations of options.

    x_transformers.py DRA DOUBLE_DRA [PART OF A ROW'S NAME OR FEATURES]

A row is a config of the format "x-transformers". The library makes the model, every parameter gets
a number of its own, and both builds of dra read its folder: logits and hidden states ("forward"),
loss and the gradient of every parameter ("gradient"). The float build also reads the tokens in two
chunks ("halves"), writes greedy tokens ("tokens": how many differ), and converts the folder to its
own format and back, which the library then loads strictly ("written").

The library computes in float64 for both builds, so that what differs is our rounding. Differences
are relative to the largest number of their tensor; of a gradient that is 0 but for rounding (a bias
that is the same for all keys) to the largest of all. Combinations are redrawn where the library's
own float32 loses more than a quarter of the tolerance. Where the library is wrong nothing is
compared: pads of decoders, cached generation with shifted tokens (it generates without a cache
here). Dropouts (F71-F74) drop nothing in these rows; F76 has none, because the command line has no
input for it: see formats/xt/test_xt_golden. Rows of other wrappers and of Transformer-XL are in
x_wrappers.py.
"""
import glob
import math
import os
import pathlib
import random
import sys
import tempfile
import warnings
from types import SimpleNamespace

try:
    import numpy
    import torch
    import x_models
    import x_wrappers
    from compare import TOLERANCE
    from side import Side
    from x_compare import changed, compare_gradient, far, there_and_back, worst
    lib = x_models.library("E")
except ImportError as missing:
    print(f"x-transformers: skipped, {missing}")
    sys.exit(0)

FLOAT, DOUBLE = TOLERANCE[numpy.float32], TOLERANCE[numpy.float64]
COMBINATIONS, GENERATED, DRAWN = 60, 8, 4000
IGNORE, PROMPT = -100, 5
COLUMNS = {"forward": FLOAT, "gradient": FLOAT, "forward64": DOUBLE, "gradient64": DOUBLE,
           "halves": FLOAT, "tokens": 0, "written": FLOAT}
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples/x-transformers"


# ---- what both read -----------------------------------------------------------------------------

def is_decoder(case):
    return case.config["attn_layers"]["type"] == "Decoder"


def draw(case, seed):
    """ids, mask (None: no pads) and targets (-100: none) of two rows."""
    g, vocab = torch.Generator().manual_seed(seed), case.config["num_tokens"]
    ids = torch.randint(vocab, (2, case.T), generator=g)
    mask = targets = None
    if case.masked:
        mask = torch.arange(case.T) < torch.tensor([[case.T - 2], [case.T // 2 + 1]])
    if case.ignored:  # as its loss takes them, in place of ids
        ids[torch.rand(ids.shape, generator=g) < 0.3] = IGNORE
    if is_decoder(case):
        targets = torch.full_like(ids, IGNORE)
        targets[:, :-1] = ids[:, 1:] if mask is None else torch.where(
            mask[:, 1:], ids[:, 1:], IGNORE)
    else:
        targets = torch.randint(vocab, ids.shape, generator=g)
        if mask is not None:
            targets[~mask] = IGNORE
    return SimpleNamespace(raw=ids, ids=ids.clamp(min=0), mask=mask, targets=targets)


def read_by(data, *more):
    """The inputs of a verb."""
    inputs = {"ids": data.ids, **{name: getattr(data, name) for name in more}}
    return inputs if data.mask is None else {**inputs, "mask": data.mask}


# ---- the library's numbers ----------------------------------------------------------------------

def loss_of(model, case, data):
    """By the library's own wrapper where it can."""
    if is_decoder(case) and data.mask is None:
        return x_models.of_config(case.config).AutoregressiveWrapper(model)(data.raw)
    logits = model(data.ids, mask=data.mask)
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), data.targets,
                                             ignore_index=IGNORE)


def theirs(model, case, data):
    with torch.no_grad():
        logits, hidden = model(data.ids, mask=data.mask, return_logits_and_embeddings=True)
    loss = loss_of(model, case, data)
    names, parameters = zip(*model.named_parameters())
    grads = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return {"logits": logits, "hidden": hidden, "loss": loss.detach(), "names": names,
            **dict(zip(names, grads))}


def generated(model, prompts, n, **more):
    """Without a cache, which gives the same where it is right. Prompts (T) or (B, T)."""
    return x_models.library("E").AutoregressiveWrapper(model).generate(
        prompts, n, temperature=0.0, cache_kv=False, **more).tolist()


# ---- the comparison -----------------------------------------------------------------------------

def compare_forward(got, want, case, data):
    kept = data.mask if data.mask is not None and is_decoder(case) else ...
    return worst([(name, far(got[name][kept], want[name][kept])) for name in ("logits", "hidden")])


def conditioned(case, seed):
    """Whether float32 leaves the library's own numbers well within our tolerance."""
    model, data = x_models.make(case.config, seed), draw(case, seed)
    want = theirs(model, case, data)
    with x_models.in_float(model, case.config) as again:
        got = theirs(again, case, data)
    return max(compare_forward(got, want, case, data)[1],
               compare_gradient(got, want)[1]) <= FLOAT / 4


def forward(side, want, case, data):
    got = side.forward(read_by(data), "--outputs", "logits,hidden")
    return compare_forward(got, want, case, data)


def gradient(side, want, case, data):
    plain = is_decoder(case) and data.mask is None and not case.ignored
    got = side.gradients(read_by(data) if plain else read_by(data, "targets"))
    return compare_gradient(got, want)


def halves(side, want, data, cut):
    got = side.forward(data.ids, "--chunks", str(cut))
    return "logits", far(got["logits"], want["logits"])


def tokens(side, model, case, data):
    n = min(GENERATED, case.config["max_seq_len"] - PROMPT)
    prompt = data.ids[0, :PROMPT]
    ours, their = side.greedy(prompt.tolist(), n), generated(model, prompt, n)
    return "tokens", float(sum(a != b for a, b in zip(ours, their, strict=True)))


def written(side, model, want, data):
    """Through dra's own format and back: the same parameters, the same logits."""
    again = there_and_back(side)
    if changed(again, model):
        return changed(again, model), math.inf
    with torch.no_grad():
        return "logits", far(again(data.ids, mask=data.mask), want["logits"])


def measure(case, seed, programs, work):
    """Differences by column, each with the tensor it was found in; errors are shown as such."""
    model = x_models.make(case.config, seed)
    data = draw(case, seed)
    want = theirs(model, case, data)
    sides = []
    for program, dtype in zip(programs, (torch.float32, torch.float64)):
        folder = f"{work}/{dtype}"
        x_models.save(model, case.config, folder, dtype)
        sides.append(Side(program, folder, work))
    one, two = sides
    columns = {
        "forward": lambda: forward(one, want, case, data),
        "gradient": lambda: gradient(one, want, case, data),
        "forward64": lambda: forward(two, want, case, data),
        "gradient64": lambda: gradient(two, want, case, data),
        "written": lambda: written(one, model, want, data),
    }
    if is_decoder(case) and data.mask is None:
        columns["halves"] = lambda: halves(one, want, data, 1 + seed % (case.T - 1))
        columns["tokens"] = lambda: tokens(one, model, case, data)
    return columns


# ---- rows that are no single model --------------------------------------------------------------

def plain_model(work, program, **stack):
    config = x_models.config_of(**stack)
    model = x_models.make(config, 1)
    x_models.save(model, config, f"{work}/model", torch.float32)
    return model, Side(program, f"{work}/model", work)


def ragged_prompts(program, work, **stack):
    """F77: rows of one batch, padded on their left, against prompts alone."""
    model, side = plain_model(work, program, **stack)
    prompts = torch.arange(21).view(3, 7) * 5 % 37
    lengths = [7, 3, 5]
    rows = generated(model, prompts, GENERATED, prompt_lens=torch.tensor(lengths))
    ours = [side.greedy(row[:n].tolist(), GENERATED) for row, n in zip(prompts, lengths)]
    return "tokens", float(sum(a != b for row in zip(ours, rows, strict=True)
                               for a, b in zip(*row, strict=True)))


def filtered(program, work, words, keep, temperature=0.8):
    """F78: what is drawn once, many times, against the library's filter: nothing else, and each as
    often as it should. In standard deviations of a share, 1 where there is anything else."""
    model, side = plain_model(work, program)
    prompt = [3, 1, 4, 1, 5]
    with torch.no_grad():
        logits = keep(model(torch.tensor([prompt]))[:, -1])
    p = (logits / temperature).softmax(-1)[0]
    drawn = side.generate(prompt, 1, "--count", str(DRAWN), "--sampler", "x", "--temperature",
                          str(temperature), *words)
    share = torch.bincount(torch.tensor(drawn).flatten(), minlength=len(p)) / len(drawn)
    sigma = (p * (1 - p) / len(drawn)).sqrt()
    beyond = ((share - p).abs() > 5 * sigma + 1e-12) | ((p == 0) & (share > 0))
    return f"tokens {beyond.nonzero().flatten().tolist()}", float(beyond.sum())


def example(program, work, path):
    """Fresh weights of an example: the library loads them strictly; the same outputs."""
    side = Side(program, f"{work}/model", work)
    side.call("init", "--config", str(path), "--out", side.folder, "--threads", "1")
    return x_wrappers.read_example(side)


def other_rows(program):
    from_wrapper = sys.modules[lib.AutoregressiveWrapper.__module__]
    filters = {
        "top-k 4": (["--top-k", "4"], lambda z: from_wrapper.top_k(z, k=4)),
        "top-k 12": (["--top-k", "12"], lambda z: from_wrapper.top_k(z, k=12)),
        "top-p 0.9": (["--top-p", "0.9"], lambda z: from_wrapper.top_p(z, thres=0.9)),
        "top-p 0.5": (["--top-p", "0.5"], lambda z: from_wrapper.top_p(z, thres=0.5)),
        "top-a 0.5": (["--top-a", "0.5"], lambda z: from_wrapper.top_a(z, min_p_ratio=0.5)),
        "min-p 0.1": (["--min-p", "0.1"], lambda z: from_wrapper.min_p(z, min_p=0.1)),
    }
    for stack in ({}, {"rel_pos_bias": True}, {"rotary_pos_emb": True}):
        yield ("F77", f"prompts of several lengths {' '.join(stack)}".rstrip(), "tokens",
               lambda work, stack=stack: ragged_prompts(program, work, **stack))
    for name, (words, keep) in filters.items():
        yield ("F78", name, "tokens",
               lambda work, words=words, keep=keep: filtered(program, work, words, keep))
    for path in sorted(glob.glob(f"{EXAMPLES}/*.json")):
        yield ("example", os.path.basename(path), "written",
               lambda work, path=path: example(program, work, path))


# ---- the table ----------------------------------------------------------------------------------

def show(features, name, columns):
    """Prints a row; returns whether it is within its tolerances. columns: functions by name."""
    line, bad = "", []
    for column, bar in COLUMNS.items():
        if column not in columns:
            line += "-".ljust(11)
            continue
        try:
            tensor, number = columns[column]()
            line += f"{number:<11.1e}"
            if not number <= bar:
                bad.append(f"{column}: {tensor} {number:.3g}, at most {bar:g}")
        except Exception as error:  # a row that cannot run is a failed row
            line += "failed".ljust(11)
            bad.append(f"{column}: {type(error).__name__}: {error}")
    print(f"{features:<13}{line} {name}", flush=True)
    for text in bad:
        print(f"{'':13}FAILED {text}", flush=True)
    return not bad


def cases():
    yield from enumerate(x_models.CASES)
    drawn = x_models.random_cases(random.Random("combinations"))
    for seed in range(1000, 1000 + COMBINATIONS):
        yield seed, next(case for case in drawn if conditioned(case, seed))


def rows(programs):
    """(features, name, functions by column of a folder to work in)"""
    for number, case in cases():
        yield case.features, case.name, lambda work, n=number, c=case: measure(c, n, programs, work)
    yield from x_wrappers.rows(programs)
    for features, name, column, function in other_rows(programs[0]):
        yield features, name, lambda work, c=column, f=function: {c: lambda: f(work)}


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(f"usage: {sys.argv[0]} DRA DOUBLE_DRA [PART OF A ROW'S NAME OR FEATURES]")
    programs = [os.path.abspath(path) for path in sys.argv[1:3]]
    part = sys.argv[3] if len(sys.argv) == 4 else ""
    print("largest relative difference from x-transformers in float64, torch", torch.__version__)
    print(f"{'feature':<13}" + "".join(f"{c:<11}" for c in COLUMNS) + " model")
    passed = []
    for features, name, make in rows(programs):
        if part in f"{features} {name}":
            with tempfile.TemporaryDirectory() as work:
                passed.append(show(features, name, make(work)))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if passed and all(passed) else 1)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    main()
