"""A GPT-2 of Hugging Face becomes a model with a recurrent memory: a delta memory is put next to
the attention of every layer, and training hands over from one to the other.

    python gpt2_to_memory.py [FOLDER [TEXT [STEPS]]]

Without a folder a small GPT-2 is trained first. The state of the result no longer grows.
"""
import os
import sys
import tempfile

import dra

TEXT = "".join("The %s of the river %s the %s. " % (a, b, c)
               for a in ("bed", "bank", "mouth", "bend") for b in ("keeps", "forgets", "holds")
               for c in ("sand", "boats", "rain", "song")) * 40


def small_gpt2(room, data):
    """A folder with config.json and model.safetensors as transformers writes them."""
    run = dra.Trainer("gpt2-tiny", data=data, out=os.path.join(room, "first"), steps=60, batch=8,
                      context=64, set={"dim": 64, "depth": 2, "heads": 2}, lr=3e-3, seed=1)
    run.run()
    run.model().save(os.path.join(room, "gpt2"), format="hf")
    return os.path.join(room, "gpt2")


def main():
    with tempfile.TemporaryDirectory() as room:
        data = sys.argv[2] if len(sys.argv) > 2 else os.path.join(room, "text.txt")
        if len(sys.argv) <= 2:
            with open(data, "w") as f:
                f.write(TEXT)
        steps = int(sys.argv[3]) if len(sys.argv) > 3 else 60
        gpt2 = dra.load(sys.argv[1] if len(sys.argv) > 1 else small_gpt2(room, data))
        text = open(data).read()[:200]
        print("GPT-2: perplexity %.3f, state after %d tokens %d bytes" % (
            gpt2.score(text).perplexity, gpt2.read(text).tokens, gpt2.read(text).nbytes))

        # As many bits as before: y = a attention + (1 - a) memory, and a is 1.
        grafted = os.path.join(room, "grafted")
        both = gpt2.graft("delta", grafted)
        assert (both(text).logits == gpt2(text).logits).all()

        # a goes from 1 to 0 over the first two thirds; then the memory is alone and learns on.
        run = dra.Trainer(grafted, data=data, out=os.path.join(room, "annealed"), steps=steps,
                          blend_steps=steps * 2 // 3, batch=8, context=64, lr=1e-3, seed=2)
        for event in run:
            if event.kind == "step" and event.step % max(steps // 6, 1) == 0:
                print("step %d, share of attention %.2f, loss %.3f" % (
                    event.step, event.blend, event.loss))
        m = run.model()
        print("memory: perplexity %.3f" % m.score(text).perplexity)
        print(m.generate("The bed of the river", tokens=40, temperature=0))


if __name__ == "__main__":
    main()
