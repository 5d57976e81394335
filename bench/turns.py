#!/usr/bin/env python3
"""Two builds of dra in turns: how much faster the second one is, case by case.

    bench/turns.py OLD NEW [--turns 7] [-- OPTIONS AND CASES OF dra bench]

A turn runs `dra bench --json` of both, each first every other time. A case counts by the median
over turns of old seconds / new seconds, above 1 is faster; cases that only one of them has are left
out. The last line is the geometric mean of all.
"""
import argparse
import json
import math
import statistics
import subprocess
import sys


def seconds_of(program, options):
    """The seconds of each case, by name."""
    run = subprocess.run([program, "bench", "--json", *options], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, check=True)
    return {c["name"]: c["seconds"] for c in json.loads(run.stdout)["cases"]}


def take_turns(old, new, turns, options):
    """The ratios of each case that both have, a list by name."""
    ratios = {}
    for turn in range(turns):
        order = [old, new] if turn % 2 == 0 else [new, old]
        times = {program: seconds_of(program, options) for program in order}
        for name, seconds in times[new].items():
            if name in times[old]:
                ratios.setdefault(name, []).append(times[old][name] / seconds)
        print(f"turn {turn + 1} of {turns}: {len(ratios)} cases", file=sys.stderr, flush=True)
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("options", nargs="*", help="of dra bench, after --")
    args = parser.parse_args()
    ratios = take_turns(args.old, args.new, args.turns, args.options)
    if not ratios:
        sys.exit("turns.py: no case that both have")
    medians = {name: statistics.median(r) for name, r in ratios.items()}
    for name, median in sorted(medians.items(), key=lambda pair: pair[1]):
        print(f"{name:32} {median:6.3f}   {min(ratios[name]):6.3f} to {max(ratios[name]):6.3f}")
    mean = math.exp(statistics.fmean(math.log(m) for m in medians.values()))
    print(f"geometric mean of {len(medians)} cases: {mean:.3f}")


if __name__ == "__main__":
    main()
