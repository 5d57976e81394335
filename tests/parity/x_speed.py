"""Training steps of x-transformers' models in PyTorch compared with `dra train`, in one run.

Ten decoders of that library's README: forward, backward, clipping at norm 1, AdamW. PyTorch runs as
in train.py: a process of its own, an allocator that keeps its pages, fused AdamW, the fused
attention where the library has it (attn_flash). The two take turns; a ratio is the median over the
turns. Memory: PyTorch's is the growth of the process from what it holds once all libraries are
loaded to its peak, in one more run with malloc as it comes; ours is all of the process until the
last step has ended: the model is written after that.

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


def config_of(name, dim, depth, T):
    return {"model_type": "x-transformers", "wrapper": "TransformerWrapper", "num_tokens": VOCAB,
            "max_seq_len": T, "release": "E",
            "attn_layers": {"type": "Decoder", "dim": dim, "depth": depth, "heads": HEADS,
                            **MODELS[name]}}


# ---- PyTorch ------------------------------------------------------------------------------------

def torch_steps(name, dim, depth, T, B, warm, steps):
    """Tokens a second and MiB of this process."""
    import torch
    import x_models
    lib = x_models.library("E")
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    before = peak_mib()
    model = lib.AutoregressiveWrapper(x_models.build(config_of(name, dim, depth, T))).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(VOCAB, (B, T + 1))

    def step():
        model(ids).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times = []
    for _ in range(warm + steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return B * T / statistics.median(times[warm:]), peak_mib() - before


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


def write_tokens(path, count):
    import torch
    from safetensors.torch import save_file
    g = torch.Generator().manual_seed(0)
    save_file({"ids": torch.randint(VOCAB, (count,), dtype=torch.int32, generator=g)}, path)


def run_dra(dra, name, sizes, warm=WARM, steps=STEPS):
    """(tokens a second, MiB)"""
    dim, depth, T, B = sizes
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/config.json", "w") as f:
            json.dump(config_of(name, dim, depth, T), f)
        write_tokens(f"{work}/ids.safetensors", B * (T + 1) * (warm + steps))
        peak = peak_of([dra, "train", "--config", f"{work}/config.json", "--tokenizer", "none",
                        "--data", f"{work}/ids.safetensors", "--out", f"{work}/run", "--steps",
                        str(warm + steps), "--batch", str(B), "--context", str(T), "--lr", "1e-4",
                        "--log-every", "1", "--eval-every=-1", "--save-every=-1", "--threads",
                        str(THREADS)], f"{work}/run/log.jsonl", warm + steps)
        with open(f"{work}/run/log.jsonl") as f:
            speeds = [json.loads(line)["tokens_per_second"] for line in f]
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
    for name in MODELS:
        if part in name:
            compare(os.path.abspath(dra), name, sizes)


if __name__ == "__main__":
    if sys.argv[1] == "--torch":
        print(*torch_steps(sys.argv[2], *map(int, sys.argv[3:])))
    else:
        main(*sys.argv[1:])
