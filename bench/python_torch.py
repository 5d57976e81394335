#!/usr/bin/env python3
"""What dra.torch.delta takes, forward and backward at B 4, T 1024, H 12, D 64 on two threads, beside
the same in C (`dra bench delta-b4`) and beside flash-linear-attention's plain PyTorch, in turns.

    PYTHONPATH=build/python bench/python_torch.py [DRA [TURNS]]

The least over turns counts, as others use the machine, too. Needs PyTorch; fla where it is (of its
package only ops/delta_rule/naive.py and einops are used). Limits: 5 times as fast as fla, 1.1 times
what C takes.
"""
import importlib.util
import json
import os
import subprocess
import sys
import time

import torch

import dra.torch as D

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


def seconds(function, heads_first):
    x, dy = inputs(heads_first)
    begin = time.perf_counter()
    function(*x)[0].backward(dy)
    return time.perf_counter() - begin


def in_c(command):
    out = subprocess.run([command, "bench", "delta-b4", "--threads", "2", "--repeats", "3",
                          "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    (row,) = json.loads(out.stdout)["cases"]
    return row["seconds"]


def main():
    command, turns = (sys.argv[1:] + ["build/dra", "5"][len(sys.argv) - 1:])[:2]
    torch.set_num_threads(2)
    naive = load_naive()
    ways = {"dra.torch.delta": lambda: seconds(D.delta, False), "in C": lambda: in_c(command)}
    if naive is not None:
        ways["fla, chunks of 32"] = lambda: seconds(naive.delta_rule_chunkwise, True)
        ways["fla, token by token"] = lambda: seconds(naive.delta_rule_recurrence, True)
    seconds(D.delta, False)  # compiles
    found = {name: [] for name in ways}
    for turn in range(int(turns)):
        for name, way in ways.items():
            if turn == 0 or "token" not in name:  # minutes
                found[name].append(way())
                print("%s: %.1f ms" % (name, found[name][-1] * 1e3), file=sys.stderr, flush=True)
    own = min(found["dra.torch.delta"])
    for name, times in found.items():
        print("%-20s %8.1f ms %6.2f x" % (name, min(times) * 1e3, min(times) / own))


if __name__ == "__main__":
    main()
