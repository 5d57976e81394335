"""dra.torch, dra.arrays and models on a GPU of NVIDIA, with the plugin libdra-cuda.so.

    DRA_PLUGIN_PATH=build PYTHONPATH=build/python python3 tests/python/gpu_check.py

Prints TAP, and what the operators take there. Without a GPU, PyTorch or the plugin it is skipped.
"""
import sys
import time

import numpy as np

import dra
from dra import functions

try:
    import torch
except ImportError:
    torch = None

number = 0


def check(name, worst, most):
    global number
    number += 1
    good = worst <= most
    print("%sok %d - %s: %.2g, at most %.2g" % ("" if good else "not ", number, name, worst, most),
          flush=True)
    return good


def why_not():
    if torch is None:
        return "no PyTorch"
    if not torch.cuda.is_available():
        return "no GPU"
    try:
        dra.load("dra-gru-tiny", device="cuda")
    except dra.DeviceError as e:
        return str(e)
    return ""


def apart(a, b):
    a, b = (np.asarray(x.detach().cpu() if torch.is_tensor(x) else x, np.float64) for x in (a, b))
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


def check_functions():
    """Each function and its gradients against plain loops in float64."""
    import parity
    good = True
    for name, special, inputs, options in parity.cases():
        outputs, gradients = parity.compare(name, inputs, options, "cuda")
        what = "%s %s" % (name, special)
        good &= check(what, max(outputs.values()), 2e-5)
        good &= check(what + ", gradients", max(gradients.values()), 1e-4)
    return good


def check_streams():
    """Work of dra comes after what its stream was given, and before what comes later."""
    import dra.torch as D
    torch.manual_seed(3)
    shape = (2, 512, 8, 64)
    base = [torch.nn.functional.normalize(torch.randn(shape), dim=-1).cuda() for _ in range(3)]
    b = torch.rand(shape[:3]).cuda()
    expected = D.delta(*(2 * x for x in base[:1]), *base[1:], b)[0] * 3
    large = torch.randn(8192, 8192, device="cuda")
    side, good = torch.cuda.Stream(), True
    for _ in range(5):
        torch.cuda.synchronize()
        q = torch.zeros_like(base[0])
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            for _ in range(10):
                large = torch.nn.functional.normalize(large @ large)  # keeps the stream busy
            q.copy_(2 * base[0])  # after that, and before dra reads it
            y = D.delta(q, *base[1:], b)[0] * 3
        side.synchronize()
        good &= check("order on a stream of its own", apart(y, expected), 0)
    return good


def check_arrays():
    torch.manual_seed(3)
    x = dict(zip("qkv", (torch.nn.functional.normalize(torch.randn(2, 40, 3, 16), dim=-1)
                         for _ in range(3))), b=torch.rand(2, 40, 3))
    y, S = functions.delta(**{n: a.cuda() for n, a in x.items()})
    plain = functions.delta(**{n: a.numpy() for n, a in x.items()})
    there = torch.from_dlpack(y)
    good = check("memory is shared: address", abs(there.data_ptr() - y.place[0]), 0)
    good &= check("arrays: y", apart(there, plain[0]), 2e-5)
    good &= check("arrays: S", apart(torch.as_tensor(S, device="cuda"), plain[1]), 2e-5)
    return good


def check_models():
    import dra.torch as D
    good = True
    for preset in ("dra-delta-tiny", "gpt2-tiny", "rwkv7-tiny"):
        m = dra.load(preset, seed=2)
        ids = m.tokenizer.encode("Once upon a time there was a river. ")
        rows = torch.from_numpy(ids)[None].cuda()
        module = D.Model(m).cuda()  # a copy on the GPU: there it is PyTorch's alone
        logits = module(rows)
        grads = m.grad(ids)
        loss = torch.nn.functional.cross_entropy(logits[0, :-1], rows[0, 1:].long())
        loss.backward()
        good &= check(preset + ": logits", apart(logits[0], m(ids).logits), 1e-4)
        worst = max(apart(p.grad, grads[n]) for n, p in module.named_parameters()
                    if p.grad is not None and np.abs(grads[n]).max() > 1e-6)
        good &= check(preset + ": gradients", worst, 1e-3)
        there = dra.load(preset, seed=2, device="cuda")
        good &= check(preset + " on the device", apart(there(ids).logits, m(ids).logits), 1e-4)
    return good


def show_times():
    import dra.torch as D
    q, k, v, dy = (torch.nn.functional.normalize(torch.randn(4, 1024, 12, 64, device="cuda"),
                                                 dim=-1) for _ in range(4))
    x = [a.requires_grad_() for a in (q, k, v, torch.rand(4, 1024, 12, device="cuda"))]
    times = []
    for _ in range(12):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        D.delta(*x)[0].backward(dy)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    print("# dra.torch.delta, forward and backward, B 4 T 1024 H 12 D 64: %.2f ms" %
          (1e3 * sorted(times[2:])[5]))


def main():
    reason = why_not()
    if reason:
        print("1..0 # SKIP " + reason)
        return
    print("# %s, PyTorch %s, NumPy %s, dra %s" % (
        torch.cuda.get_device_name(), torch.__version__, np.__version__, dra.__version__))
    good = [f() for f in (check_functions, check_streams, check_arrays, check_models)]
    print("1..%d" % number)
    show_times()
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
