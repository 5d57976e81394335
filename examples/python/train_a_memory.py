"""Train a small model with a memory, and look inside: what it keeps, and how fast it forgets.

    python train_a_memory.py [TEXT]
"""
import os
import random
import sys
import tempfile

import numpy as np

import dra

NAMES = ("Ada", "Bo", "Cem", "Dua", "Eli", "Fay")
THINGS = ("key", "map", "coin", "ring", "book", "cup")


def stories(n, seed=0):
    """Sentences in which what is asked for was said before."""
    rng, out = random.Random(seed), []
    for _ in range(n):
        names, things = rng.sample(NAMES, 3), rng.sample(THINGS, 3)
        told = " ".join("%s has the %s." % pair for pair in zip(names, things))
        i = rng.randrange(3)
        out.append("%s Who has the %s? %s.\n" % (told, things[i], names[i]))
    return "".join(out)


def main():
    with tempfile.TemporaryDirectory() as room:
        data = sys.argv[1] if len(sys.argv) > 1 else os.path.join(room, "stories.txt")
        if len(sys.argv) == 1:
            with open(data, "w") as f:
                f.write(stories(3000))

        run = dra.Trainer("dra-delta-tiny", data=data, out=os.path.join(room, "run"),
                          set={"dim": 64, "depth": 2, "heads": 2}, steps=120, batch=8, context=128,
                          lr=3e-3, seed=1)
        losses = [event.loss for event in run if event.kind == "step"]
        print("loss of the first step %.2f, of the last %.2f" % (losses[0], losses[-1]))
        m = run.model()

        # How fast it forgets: tokens until half is left, head by head.
        for d in m.decays:
            print("layer %d, head %d: %s forgets half in %.0f tokens at x = 0" %
                  (d.layer, d.head, d.memory, d.half_life))

        # What it holds: the matrix of a layer is an array, and changes as the model reads on.
        s = m.read("Ada has the key.")
        memory = s["layers.0.mixer.S"]
        before = memory.copy()
        m.read(" Bo has the map.", s)
        print("the second sentence changed %.0f %% of the first layer's memory" %
              (100 * np.linalg.norm(memory - before) / np.linalg.norm(before)))

        # What is in it decides what comes next: the same state with one layer's memory erased.
        erased = s.fork()
        erased["layers.0.mixer.S"] = np.zeros_like(erased["layers.0.mixer.S"])
        told, forgot = (m.score(" Who has the key?", state=x).perplexity for x in (s, erased))
        print("perplexity of what follows: %.2f; with that memory erased: %.2f" % (told, forgot))
        print(s.report())


if __name__ == "__main__":
    main()
