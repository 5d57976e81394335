#!/usr/bin/env python3
"""What dra.torch.delta takes, forward and backward at B 4, T 1024, H 12, D 64 on two threads, beside
the same program run from C alone (that of `dra bench delta-b4`, without its norms) and beside
flash-linear-attention's plain PyTorch, in turns.

    PYTHONPATH=build/python bench/python_torch.py [TURNS]

Processor time of all threads, the median over turns, and the least time by the clock: others may use
the machine, too. Needs PyTorch; fla where it is (of its package only the faster form of
ops/delta_rule/naive.py and einops are used). Limits: 5 times as fast as fla, 1.1 times what C takes.
"""
import importlib.util
import os
import statistics
import sys
import time

import torch

import dra.torch as D
from dra import functions, programs
from dra._library import call, lib
from dra.opening import open_device

B, T, H, N = 4, 1024, 12, 64


def load_naive():
    """fla's functions in plain PyTorch; None: fla is not there."""
    found = importlib.util.find_spec("fla")
    folder = found and list(found.submodule_search_locations or [])[:1]
    path = os.path.join(folder[0], "ops", "delta_rule", "naive.py") if folder else ""
    if not os.path.exists(path):
        return None
    spec = importlib.util.spec_from_file_location("fla_naive", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs(heads_first):
    torch.manual_seed(1)
    q, k, v, dy = (torch.nn.functional.normalize(torch.randn(B, T, H, N), dim=-1)
                   for _ in range(4))
    x = [q, k, v, torch.rand(B, T, H)]
    x = [a.transpose(1, 2).contiguous() if heads_first else a for a in (*x, dy)]
    return [a.requires_grad_() for a in x[:4]], x[4]


def timed(function):
    """Seconds of the processor and by the clock."""
    clock, processor = time.perf_counter(), time.process_time()
    function()
    return time.process_time() - processor, time.perf_counter() - clock


def both_ways(function, heads_first):
    """A way: each time with the same inputs, so that nothing but the function runs."""
    x, dy = inputs(heads_first)

    def way():
        for a in x:
            a.grad = None
        return timed(lambda: function(*x)[0].backward(dy))

    return way


def alone():
    """The program of the operator, run by one call of the library."""
    x, dy = inputs(False)
    given = dict(zip("qkvb", (a.detach() for a in x)))
    shapes = {n: tuple(a.shape) for n, a in given.items()}
    form = functions.delta.form
    program = programs.program(form.recipe(shapes, {}, ("y",), tuple("qkvb")),
                               open_device("cpu", 2))
    room = {"to.grad." + n: torch.zeros_like(a) for n, a in given.items()}
    bound = {**given, "d.y": dy, **room}
    buffers = program.take()
    buffers.bind({n: (a.data_ptr(), a.numel() * a.element_size()) for n, a in bound.items()})

    def run(_keep=bound):
        call(lib.dra_run, buffers.at)

    return run


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    torch.set_num_threads(2)
    naive, run = load_naive(), alone()
    ways = {"dra.torch.delta": both_ways(D.delta, False), "in C": lambda: timed(run)}
    if naive is not None:
        ways["fla, chunks of 32"] = both_ways(naive.delta_rule_chunkwise, True)
    ways["dra.torch.delta"](), run()  # compiled, and its memory there
    found = {name: [] for name in ways}
    for name, way in ways.items():
        if "fla" in name:
            found[name].append(way())  # slow, and its threads spin on: before the others
    for _ in range(turns):
        for name in ("in C", "dra.torch.delta"):
            found[name].append(ways[name]())
    middle = {n: statistics.median(p for p, _ in times) for n, times in found.items()}
    for name, times in found.items():
        print("%-20s %9.1f ms of the processor %7.2f x   %9.1f ms by the clock" % (
            name, middle[name] * 1e3, middle[name] / middle["dra.torch.delta"],
            min(c for _, c in times) * 1e3))


if __name__ == "__main__":
    main()
