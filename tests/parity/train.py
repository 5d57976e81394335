"""A GPT-2-shaped training step in PyTorch compared with `dra bench gpt2-small`, in one run.

The same shape (6 layers, 6 heads, width 384, vocabulary 50304, T 256, B 4, tied head), AdamW and
clipping at norm 1. PyTorch runs in a process of its own with a memory allocator that keeps its
pages (glibc told not to give them back, huge pages on), which is worth a factor of two to it;
fused AdamW and scaled_dot_product_attention, in float32 and under bf16 autocast. The two take
turns; a ratio is the median over the turns. Memory: ours as planned, with everything bound (the
process holds 1 % more); PyTorch's is the growth of the process, from before there was a model to
its peak, in one more run with malloc as it comes, since not all kept pages are needed.
DRA_PARITY_THREADS=1,2,4,8,16 says on how many threads; without it, on one and two.
"""
import json
import os
import resource
import statistics
import subprocess
import sys
import time

L, H, C, V, T, B = 6, 6, 384, 50304, 256, 4
TURNS = 3
KEEP_PAGES = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=68719476736:" \
             "glibc.malloc.hugetlb=1"


def peak_mib():
    """Of this process so far. Its children do not count."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def torch_steps(threads, bf16):
    """Tokens a second and MiB of one process: 2 steps to warm up, then 5 timed."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    torch.set_num_threads(threads)
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(C), nn.LayerNorm(C)
            self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
            self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

        def forward(self, x):
            q, k, v = self.qkv(self.n1(x)).view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
            return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(V, C), nn.Embedding(T, C)
            self.blocks = nn.Sequential(*[Block() for _ in range(L)])
            self.norm = nn.LayerNorm(C)

        def forward(self, ids, target):
            x = self.tokens(ids) + self.places(torch.arange(T))
            x = self.norm(self.blocks(x))
            return F.cross_entropy(F.linear(x, self.tokens.weight).view(-1, V), target.view(-1))

    before = peak_mib()
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, target = torch.randint(V, (B, T)), torch.randint(V, (B, T))

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = model(ids, target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(2):
        step()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return B * T / statistics.median(times), peak_mib() - before


def run_torch(threads, bf16, tunables=KEEP_PAGES):
    """(tokens a second, MiB)"""
    env = dict(os.environ, GLIBC_TUNABLES=tunables, OMP_NUM_THREADS=str(threads))
    out = subprocess.run([sys.executable, __file__, "--torch", str(threads), str(int(bf16))],
                         env=env, capture_output=True, text=True, check=True)
    return [float(x) for x in out.stdout.split()]


def run_dra(dra, case, threads):
    """(tokens a second, MiB)"""
    out = subprocess.run([dra, "bench", case, "--threads", str(threads), "--repeats", "5",
                          "--json"], capture_output=True, text=True, check=True)
    row = json.loads(out.stdout)["cases"][0]
    return 1 / row["unit_seconds"], row["memory"] / 2**20


def compare(dra, case, threads, bf16, kind):
    """Two lines: ours, and PyTorch's with our speed over its."""
    turns = [(run_dra(dra, case, threads), run_torch(threads, bf16)) for _ in range(TURNS)]
    ours, theirs = (statistics.median(t[i][0] for t in turns) for i in range(2))
    ratio = statistics.median(t[0][0] / t[1][0] for t in turns)
    small = run_torch(threads, bf16, tunables="")[1]
    print(f"{'dra, ' + kind:34}{threads:8}{ours:10.0f}{turns[0][0][1]:8.0f}")
    print(f"{'torch, ' + kind:34}{threads:8}{theirs:10.0f}{small:8.0f}{ratio:10.2f}", flush=True)


def main(dra):
    head = ("training step, gpt2-small", "threads", "tokens/s", "MiB", "dra / it")
    print("{:34}{:>8}{:>10}{:>8}{:>10}".format(*head))
    counts = os.environ.get("DRA_PARITY_THREADS", "1,2")
    for threads in (int(n) for n in counts.split(",")):
        compare(dra, "gpt2-small", threads, False, "f32")
        compare(dra, "gpt2-small-bf16", threads, True, "bf16 products (autocast)")


if __name__ == "__main__":
    if sys.argv[1] == "--torch":
        print(*torch_steps(int(sys.argv[2]), sys.argv[3] == "1"))
    else:
        main(sys.argv[1])
