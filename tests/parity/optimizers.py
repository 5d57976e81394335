"""Optimizers of `dra train` against torch.optim: weights after each of some steps.

    optimizers.py DOUBLE_DRA

The double build trains a small model and saves every step. The gradients of a step follow from the
moments before and after it, which are linear in them; torch gets the same ones. SGD has no decay
here, because PyTorch adds it to the gradient and dra takes it from the weights (decoupled, as in
AdamW). Muon orthogonalises in bfloat16 in PyTorch: here it is told to stay in float64. What differs
then is that it divides by max(norm, 1e-7) and dra, like the author's post, by norm + 1e-7. Lion is
not in torch.optim: its formula.
"""
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"optimizers: skipped, {missing}")
    sys.exit(0)

STEPS, RATE, DECAY = 6, 0.01, 0.1
EXACT, NORM = 1e-10, 1e-4  # NORM: 1e-7 is up to 1e-5 of the norm, and Newton-Schulz amplifies it


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                way = torch.sign(b1 * m + (1 - b1) * p.grad)
                p.mul_(1 - group["lr"] * group["decay"]).sub_(group["lr"] * way)
                m.mul_(b2).add_((1 - b2) * p.grad)


def muon(params):
    return torch.optim.Muon(params, lr=20 * RATE, weight_decay=DECAY, momentum=0.95,
                            nesterov=True, adjust_lr_fn="original")


# name, options of dra, share of the old moment and of the gradient in the new one, torch's
ROWS = [
    ("sgd", ["--optimizer", "sgd", "--weight-decay=0"], 0.9, 1,
     lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9), EXACT),
    ("sgd, nesterov", ["--optimizer", "sgd", "--nesterov", "--momentum", "0.8",
                       "--weight-decay=0"], 0.8, 1,
     lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.8, nesterov=True), EXACT),
    ("lion", ["--optimizer", "lion", "--weight-decay", str(DECAY)], 0.99, 0.01,
     lambda p: Lion(p, RATE, (0.9, 0.99), DECAY), EXACT),
    ("muon", ["--optimizer", "muon", "--weight-decay", str(DECAY)], 0.95, 0.05, muon, NORM),
]


def train(dra, folder, options):
    """Weights and moments of every step, those before the first as step 0."""
    text = folder / "text"
    text.write_text("".join(f"line {i} of a text, {i * i % 97}\n" for i in range(200)))
    model = ["--preset", "gpt2-tiny", "--set", "dim=16", "--set", "heads=2", "--set", "depth=2"]
    subprocess.run([dra, "init", *model, "--out", str(folder / "start"), "--seed", "1"], check=True,
                   capture_output=True)
    subprocess.run([dra, "train", "--model", str(folder / "start"), "--data", str(text), "--out",
                    str(folder / "run"), "--steps", str(STEPS), "--batch", "2", "--context", "32",
                    "--schedule", "constant", "--warmup", "1", "--lr", str(RATE), "--clip=0",
                    "--save-every", "1", "--keep", str(STEPS), *options], check=True,
                   capture_output=True)
    steps = [folder / f"run/train/step-{i:08}" for i in range(1, STEPS + 1)]
    weights = [load_file(folder / "start/model.safetensors")]
    weights += [load_file(s / "model.safetensors") for s in steps]
    return weights, [load_file(s / "optimizer.safetensors") for s in steps]


def compare(dra, options, old, new, make):
    with tempfile.TemporaryDirectory() as folder:
        weights, moments = train(dra, pathlib.Path(folder), options)
    names = [n for n in weights[0] if f"m.{n}" in moments[0] and f"v.{n}" not in moments[0]
             and ("W_" in n or "muon" not in options)]
    if "--weight-decay=0" not in options:  # dra lets projections alone decay
        names = [n for n in names if "W_" in n]
    params = {n: torch.nn.Parameter(weights[0][n].double()) for n in names}
    optimizer, worst = make(list(params.values())), 0
    for step in range(STEPS):
        for n, p in params.items():
            before = moments[step - 1][f"m.{n}"] if step else torch.zeros_like(p)
            p.grad = (moments[step][f"m.{n}"] - old * before) / new
        optimizer.step()
        for n, p in params.items():
            want = weights[step + 1][n].double()
            worst = max(worst, float((p.detach() - want).abs().max() / want.abs().max()))
    return len(names), worst


def main(dra):
    torch.Tensor.bfloat16 = lambda x: x.clone()
    print(f"{'optimizer against torch.optim':34}{'tensors':>8}{'difference':>12}{'tolerance':>12}")
    failed = False
    for name, options, old, new, make, tolerance in ROWS:
        n, worst = compare(dra, options, old, new, make)
        bad = not worst <= tolerance or n == 0
        failed = failed or bad
        print(f"{name:34}{n:8}{worst:12.1e}{tolerance:12.0e}{'  FAILED' if bad else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
