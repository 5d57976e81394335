"""Training steps of x-transformers' models in PyTorch compared with `dra train`, in one run.

Ten decoders of that library's README, and one model of each other kind: an encoder with a decoder,
images in classes, vectors, Transformer-XL. A step is forward, backward, clipping at norm 1, AdamW.
Tokens are those of the rows that are learned: of a pair its target, of an image its patches, of
Transformer-XL all of its four pieces. PyTorch runs as in train.py: a process of its own, an
allocator that keeps its pages, fused AdamW, the fused attention where the library has it
(attn_flash). The two take turns; a ratio is the median over the turns. Memory: PyTorch's is the
growth of the process from what it holds once all libraries are loaded to its peak, in one more run
with malloc as it comes; ours is all of the process until the last step has ended: the model is
written after that.

    x_speed.py DRA [DIM DEPTH T B [PART OF A NAME]]    512 6 1024 2, or these
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from train import KEEP_PAGES, peak_mib

THREADS, TURNS, WARM, STEPS, VOCAB, HEADS = 2, 3, 2, 5, 20000, 8
FLASH = {"attn_flash": True}
MODELS = {
    "flash attention": FLASH,
    "rms norm, no biases": {**FLASH, "use_rmsnorm": True, "ff_no_bias": True},
    "swiglu": {**FLASH, "ff_glu": True, "ff_swish": True},
    "rotary": {**FLASH, "rotary_pos_emb": True},
    "alibi": {**FLASH, "alibi_pos_bias": True},
    "one kv head": {**FLASH, "attn_one_kv_head": True},
    "qk norm": {**FLASH, "attn_qk_norm": True},
    "16 memory key/values": {**FLASH, "attn_num_mem_kv": 16},
    "T5 bias": {"rel_pos_bias": True},
    "talking heads": {"attn_pre_talking_heads": True, "attn_post_talking_heads": True},
}


IMAGE, PATCH, CLASSES, WIDTH, PAIR_VOCAB = 256, 32, 1000, 777, 256
PATCHES = (IMAGE // PATCH) ** 2


class Texts:
    """Decoders of tokens with options of their own."""

    def __init__(self, options, dim, depth, T, B):
        self.stack = {"type": "Decoder", "dim": dim, "depth": depth, "heads": HEADS, **options}
        self.T, self.B, self.loss = T, B, "AutoregressiveWrapper"

    def config(self):
        return {"wrapper": "TransformerWrapper", "num_tokens": VOCAB, "max_seq_len": self.T,
                "attn_layers": self.stack}

    def context(self):
        """Of dra train; rows of examples need none."""
        return ["--context", str(self.T), "--tokenizer", "none"]

    def draw(self, torch, g, steps):
        """Of dra: a text of all steps."""
        return {"ids": torch.randint(VOCAB, (self.B * (self.T + 1) * steps,), generator=g)}

    def inputs(self, torch):
        return [torch.randint(VOCAB, (self.B, self.T + 1))]

    def tokens(self):
        return self.B * self.T

    def model(self, lib, build):
        return getattr(lib, self.loss)(build(self.config()))


class Pieces(Texts):
    """Transformer-XL: rows of four pieces, each with the memories of those before it."""

    def __init__(self, options, dim, depth, T, B):
        super().__init__(options, dim, depth, T, B)
        self.piece, self.T, self.loss = T // 2, 2 * T, "XLAutoregressiveWrapper"

    def config(self):
        return {**super().config(), "max_seq_len": self.piece, "max_mem_len": 4 * self.piece}


class Rows:
    """Kinds of which a step reads the same rows in both; B of them."""

    def context(self):
        return []

    def draw(self, torch, g, steps):
        return dict(zip(self.names, self.rows(torch, g)))

    def inputs(self, torch):
        return self.rows(torch, torch.Generator().manual_seed(0))

    def tokens(self):
        return self.B * self.T


class Pairs(Rows):
    names = ("src", "tgt")

    def __init__(self, options, dim, depth, T, B):
        self.dim, self.depth, self.T, self.B, self.options = dim, depth, T, B, options

    def config(self):
        side = {"num_tokens": PAIR_VOCAB, "max_seq_len": self.T, "depth": self.depth,
                "heads": HEADS, **self.options}
        return {"wrapper": "XTransformer", "dim": self.dim, "tie_token_emb": True,
                **{f"{s}_{k}": v for s in ("enc", "dec") for k, v in side.items()}}

    def rows(self, torch, g):
        return [torch.randint(PAIR_VOCAB, (self.B, n), generator=g) for n in (self.T, self.T + 1)]

    def model(self, lib, build):
        return build(self.config())


class Images(Rows):
    """As many as have the tokens of B rows."""

    names = ("img", "labels")

    def __init__(self, options, dim, depth, T, B):
        self.stack = {"type": "Encoder", "dim": dim, "depth": depth, "heads": HEADS, **options}
        self.T, self.B = PATCHES, max(1, B * T // PATCHES)

    def config(self):
        return {"wrapper": "ViTransformerWrapper", "image_size": IMAGE, "patch_size": PATCH,
                "num_classes": CLASSES, "attn_layers": self.stack}

    def rows(self, torch, g):
        return [torch.randn((self.B, 3, IMAGE, IMAGE), generator=g),
                torch.randint(CLASSES, (self.B,), generator=g)]

    def model(self, lib, build):
        import torch

        class Labels(torch.nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, img, labels):
                return torch.nn.functional.cross_entropy(self.net(img), labels)
        return Labels(build(self.config()))


class Vectors(Rows):
    names = ("x",)

    def __init__(self, options, dim, depth, T, B):
        self.stack = {"type": "Decoder", "dim": dim, "depth": depth, "heads": HEADS, **options}
        self.T, self.B = T, B

    def config(self):
        return {"wrapper": "ContinuousTransformerWrapper", "dim_in": WIDTH, "dim_out": WIDTH,
                "max_seq_len": self.T, "attn_layers": self.stack}

    def rows(self, torch, g):
        return [torch.randn((self.B, self.T + 1, WIDTH), generator=g)]

    def model(self, lib, build):
        return lib.ContinuousAutoregressiveWrapper(build(self.config()))


OTHERS = {
    "encoder and decoder": (Pairs, FLASH),
    "images, 256 by 32": (Images, FLASH),
    "vectors": (Vectors, FLASH),
    "transformer-xl, T5 bias": (Pieces, {"rel_pos_bias": True}),
}


def kind_of(name, sizes):
    kind, options = OTHERS[name] if name in OTHERS else (Texts, MODELS[name])
    return kind(options, *sizes)


def config_of(kind):
    return {"model_type": "x-transformers", "release": "E", **kind.config()}


# ---- PyTorch ------------------------------------------------------------------------------------

def torch_steps(name, dim, depth, T, B, warm, steps):
    """Tokens a second and MiB of this process."""
    import torch
    import x_models
    lib = x_models.library("E")
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    before = peak_mib()
    kind = kind_of(name, (dim, depth, T, B))
    model = kind.model(lib, x_models.build).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs = kind.inputs(torch)

    def step():
        model(*inputs).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times = []
    for _ in range(warm + steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return kind.tokens() / statistics.median(times[warm:]), peak_mib() - before


def run_torch(name, sizes, warm=WARM, steps=STEPS, tunables=KEEP_PAGES):
    """(tokens a second, MiB)"""
    env = dict(os.environ, GLIBC_TUNABLES=tunables, OMP_NUM_THREADS=str(THREADS))
    words = [name, *map(str, (*sizes, warm, steps))]
    out = subprocess.run([sys.executable, __file__, "--torch", *words], env=env,
                         capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"x_speed.py, torch, {name}: {out.stderr}")
    return [float(x) for x in out.stdout.split()[-2:]]


# ---- dra ----------------------------------------------------------------------------------------

def held_mib(pid):
    """The most that a running process has held so far; 0 when it has ended. (What wait4() tells
    counts the process it was forked from, too.)"""
    try:
        with open(f"/proc/{pid}/status") as f:
            return sum(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM"))
    except OSError:
        return 0


def lines_of(path):
    try:
        with open(path) as f:
            return len(f.readlines())
    except OSError:
        return 0


def peak_of(words, log, steps):
    """MiB of a process that must end well, until its log has the last step."""
    with tempfile.TemporaryFile("w+") as text:
        process, peak = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=text), 0
        while process.poll() is None:
            held = held_mib(process.pid)
            if lines_of(log) < steps:
                peak = max(peak, held)
            time.sleep(0.02)
        text.seek(0)
        if process.returncode:
            sys.exit(f"x_speed.py: {' '.join(words[:2])}: {text.read()}")
    return peak


def write_data(path, kind, steps):
    import torch
    from safetensors.torch import save_file
    drawn = kind.draw(torch, torch.Generator().manual_seed(0), steps)
    save_file({name: t if t.is_floating_point() else t.to(torch.int32)
               for name, t in drawn.items()}, path)


def speeds_of(log, kind):
    """Tokens a second of every step, by the time each took."""
    with open(log) as f:
        seconds = [0.0] + [json.loads(line)["seconds"] for line in f]
    return [kind.tokens() / (b - a) for a, b in zip(seconds, seconds[1:])]


def run_dra(dra, name, sizes, warm=WARM, steps=STEPS):
    """(tokens a second, MiB)"""
    kind = kind_of(name, sizes)
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/config.json", "w") as f:
            json.dump(config_of(kind), f)
        write_data(f"{work}/data.safetensors", kind, warm + steps)
        peak = peak_of([dra, "train", "--config", f"{work}/config.json", "--data",
                        f"{work}/data.safetensors", "--out", f"{work}/run", "--steps",
                        str(warm + steps), "--batch", str(kind.B), *kind.context(), "--lr", "1e-4",
                        "--log-every", "1", "--eval-every=0", "--save-every=0", "--threads",
                        str(THREADS)], f"{work}/run/log.jsonl", warm + steps)
        speeds = speeds_of(f"{work}/run/log.jsonl", kind)
    return statistics.median(speeds[warm:]), peak


# ---- in turns -----------------------------------------------------------------------------------

def compare(dra, name, sizes):
    turns = [(run_dra(dra, name, sizes), run_torch(name, sizes)) for _ in range(TURNS)]
    ours, its = (statistics.median(t[i][0] for t in turns) for i in range(2))
    ratio = statistics.median(t[0][0] / t[1][0] for t in turns)
    mib, small = turns[0][0][1], run_torch(name, sizes, 0, 1, tunables="")[1]
    print(f"{name:24}{ours:10.0f}{its:10.0f}{ratio:10.2f}{mib:10.0f}{small:10.0f}"
          f"{small / mib:10.2f}", flush=True)


def main(dra, *words):
    try:
        import x_models
        x_models.library("E")
    except ImportError as missing:
        print(f"x-transformers: speed skipped, {missing}")
        return
    sizes, part = tuple(map(int, words[:4])) or (512, 6, 1024, 2), "".join(words[4:])
    title = "dim {}, depth {}, T {}, B {}".format(*sizes)
    print(f"training step of x-transformers, {title}, {THREADS} threads")
    print(f"{'':24}{'tokens/s':>20}{'dra / it':>10}{'MiB':>20}{'it / dra':>10}")
    print(f"{'model':24}{'dra':>10}{'torch':>10}{'':10}{'dra':>10}{'torch':>10}")
    for name in [*MODELS, *OTHERS]:
        if part in name:
            compare(os.path.abspath(dra), name, sizes)


if __name__ == "__main__":
    if sys.argv[1] == "--torch":
        print(*torch_steps(sys.argv[2], *map(int, sys.argv[3:])))
    else:
        main(*sys.argv[1:])
