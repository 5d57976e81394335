"""A gru + time layer, forward and backward, compared with the PyTorch module it comes from.

Width 384, 6 heads, biases, gradients of x and all parameters; ours with learned decays, the module
(RecurrentCore in originals.py) with its constant one and a causal mask made once. Each runs in a
process of its own, PyTorch with the allocator of train.py. The two take turns, and of each the
fastest step counts: company slows the module's many small operations several times more than ours,
so that medians would flatter us. Memory is the growth of a fresh process from before there was a
layer to its peak; PyTorch's is of one more process that takes one step with malloc as it comes.

    layer.py LIBRARY [B T]...    the shapes below, or these
"""
import os
import subprocess
import sys
import time

from train import KEEP_PAGES, peak_mib

C, H = 384, 6
THREADS, TURNS = 2, 3
WANTED = {(4, 1024): 8, (1, 1024): 12, (1, 4096): 15}  # times the module's speed


def timed(step, tokens, warm, steps):
    """Tokens a second in the fastest of `steps` steps, after `warm` to warm up."""
    times = []
    for _ in range(warm + steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return tokens / min(times[warm:])


def ours(library, B, T):
    import numpy
    import dra
    from mixer import Mixer
    lib, r = dra.Library(library, THREADS), numpy.random.default_rng(0)
    before = peak_mib()
    mixer = Mixer(lib, dim=C, heads=H, bias=True, a={"memory": "gru", "retrieval": "time"})
    layer = mixer.layer(B, T, fresh=True)
    g, params = layer.g, layer.params
    g.arrays["x"], dy = (r.standard_normal((B, T, C), numpy.float32) for _ in range(2))
    for name, shape in mixer.params.items():
        g.arrays[name] = (r.standard_normal(shape, numpy.float32) * shape[-1] ** -0.5)
    dx = g.gradient([layer.y], [g.bind("input", "dy", dy)], [layer.x, *params.values()])
    program = g.compile(**{f"d {n}": v for n, v in zip(["x", *params], dx)})
    speed = timed(lambda: lib.check("run", program.buffers), B * T, 2, 5)
    return speed, peak_mib() - before


def theirs(B, T, warm, steps):
    import torch
    import originals
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    before = peak_mib()
    core, mask = originals.RecurrentCore(C, H), originals.causal_mask(T)
    x, dy = torch.randn(B, T, C, requires_grad=True), torch.randn(B, T, C)
    hk, hv = (torch.zeros(B, H, C // H) for _ in range(2))

    def step():
        core(x, hk, hv, mask)[0].backward(dy)
        core.zero_grad(set_to_none=True)
        x.grad = None

    return timed(step, B * T, warm, steps), peak_mib() - before


def run(which, *numbers, tunables=""):
    """(tokens a second, MiB) of a fresh process"""
    env = dict(os.environ, GLIBC_TUNABLES=tunables, OMP_NUM_THREADS=str(THREADS))
    out = subprocess.run([sys.executable, __file__, which, *map(str, numbers)], env=env,
                         capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"layer.py {which}: {out.stderr}")
    return [float(x) for x in out.stdout.split()]


def compare(library, B, T):
    """Two lines: ours, and PyTorch's with our speed over its."""
    turns = [(run("--ours", library, B, T), run("--theirs", B, T, 1, 2, tunables=KEEP_PAGES))
             for _ in range(TURNS)]
    speed, its = (max(t[i][0] for t in turns) for i in range(2))
    mib, small = turns[0][0][1], run("--theirs", B, T, 0, 1)[1]
    shape, wanted = f"B {B}, T {T}", WANTED.get((B, T), "-")
    print(f"{'dra, ' + shape:34}{speed:10.0f}{mib:8.0f}")
    print(f"{'torch, ' + shape:34}{its:10.0f}{small:8.0f}{speed / its:10.1f}{wanted:>8}"
          f"{small / mib:14.1f}", flush=True)


def main(library, *sizes):
    shapes = list(zip(sizes[::2], sizes[1::2])) or list(WANTED)
    title = f"gru + time layer, {THREADS} threads"
    print(f"{title:34}{'tokens/s':>10}{'MiB':>8}{'dra / it':>10}{'wanted':>8}{'its MiB / dra':>14}")
    for B, T in shapes:
        compare(library, B, T)


if __name__ == "__main__":
    if sys.argv[1] == "--ours":
        print(*ours(sys.argv[2], *map(int, sys.argv[3:])))
    elif sys.argv[1] == "--theirs":
        print(*theirs(*map(int, sys.argv[2:])))
    else:
        main(sys.argv[1], *map(int, sys.argv[2:]))
