#!/usr/bin/env python3
"""What a decoded token costs through Python beyond what it costs in C, in microseconds of processor
time: m.stream() against dra_generate() of the same model and state, in turns.

    PYTHONPATH=build/python bench/python_tokens.py [PRESET [TOKENS [TURNS]]]

One thread. The median over turns counts; the limit is 30 microseconds.
"""
import ctypes
import statistics
import sys
import time

import numpy as np

import dra
from dra import _c, generation
from dra._library import call, lib, view


def in_c(model, state, tokens):
    """Seconds of dra_generate() alone, and the ids."""
    plan = generation.Plan(model, {"temperature": 0, "ignore_end": True})
    writer = generation.Writer(model, [state.fork()], tokens, plan)
    at = writer._generator.at
    lib.dra_generate_stop(at)
    error = _c.dra_error()
    begin = time.thread_time()
    status = lib.dra_generate(at, ctypes.byref(plan.config), writer.out, ctypes.byref(error))
    seconds = time.thread_time() - begin
    assert status == 0, error.text
    ids = view(writer.out[0].ids, (writer.out[0].n,), np.int32, None).tolist()
    call(lib.dra_generate_start, at, ctypes.byref(plan.config))
    writer.stop([0])
    return seconds, ids


def in_python(model, state, tokens, how):
    options = dict(tokens=tokens, state=state.fork(), temperature=0, ignore_end=True)
    empty = None if "text" in how else np.empty(0, np.int32)
    begin = time.thread_time()
    stream = model.stream(empty, **options)
    for _ in stream:
        pass
    return time.thread_time() - begin, stream.ids


def main():
    preset, tokens, turns = (sys.argv[1:] + ["dra-gru-tiny", "500", "9"][len(sys.argv) - 1:])[:3]
    tokens = int(tokens)
    model = dra.load(preset, seed=1, threads=1, set={"dim": 32, "depth": 1, "heads": 2})
    state = model.read("Once upon a time")
    rows = {"ids": [], "text": []}
    for _ in range(int(turns)):
        seconds, expected = in_c(model, state, tokens)
        for how, found in rows.items():
            mine, ids = in_python(model, state, tokens, how)
            assert ids == expected
            found.append((mine - seconds) / tokens * 1e6)
    print("%s: a token in C takes %.1f us" % (preset, seconds / tokens * 1e6))
    for how, found in rows.items():
        print("m.stream() of %-4s  %5.1f us more a token (%.1f to %.1f)" % (
            how, statistics.median(found), min(found), max(found)))


if __name__ == "__main__":
    main()
