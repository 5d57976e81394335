"""Training runs: events, resume to the bit, callbacks, Ctrl-C."""
import os
import unittest

import numpy as np

import dra
from common import SMALL, TEXT, Case, command, python, run_command, small

SETTINGS = {"batch": 2, "context": 32, "seed": 5, "lr": 1e-3}


class Runs(Case):
    def setUp(self):
        self.room = self.folder()
        self.text = self.room + "/text.txt"
        with open(self.text, "w") as f:
            f.write(TEXT * 10)

    def start(self, name, **more):
        options = dict(SETTINGS, steps=8, data=self.text, out=self.room + "/" + name, set=SMALL)
        options.update(more)
        return dra.Trainer("dra-delta-tiny", **options)

    def weights(self, name):
        m = dra.load(self.room + "/" + name)
        return {k: v.copy() for k, v in m.parameters.items()}

    def same_weights(self, a, b):
        a, b = self.weights(a), self.weights(b)
        for name in a:
            self.same(a[name], b[name], name)

    def test_a_run(self):
        kinds, seen = [], []
        with self.start("run", eval_data=self.text, eval_every=4, save_every=4,
                        callbacks=[lambda e: seen.append(e.kind)]) as run:
            events = list(run)
        kinds = [e.kind for e in events]
        self.assertEqual(kinds.count("step"), 8)
        self.assertEqual(kinds.count("eval"), 2)
        self.assertEqual(kinds.count("save"), 2)
        self.assertEqual(seen, kinds)
        steps = [e for e in events if e.kind == "step"]
        self.assertEqual([e.step for e in steps], list(range(1, 9)))
        self.assertLess(steps[-1].loss, steps[0].loss)
        self.assertTrue(np.isfinite([e.eval_loss for e in events if e.kind == "eval"]).all())
        self.assertEqual(run.model().config["dim"], 48)

    def test_resumed_to_the_bit(self):
        self.start("whole").run()
        self.start("parts", steps=3, schedule_end=8, warmup=1).run()
        self.start("other", steps=8, schedule_end=8, warmup=1).run()
        last = dra.Trainer.resume(self.room + "/parts", data=self.text, steps=8).run()
        self.assertEqual(last.step, 8)
        self.same_weights("parts", "other")

    def test_stopped_between_steps(self):
        with self.start("left") as run:
            for event in run:
                if event.step == 3:
                    break
        again = dra.Trainer.resume(self.room + "/left", data=self.text)
        self.assertEqual([e.step for e in again if e.kind == "step"], [4, 5, 6, 7, 8])
        self.start("whole").run()
        self.same_weights("left", "whole")

    def test_a_callback_that_says_no(self):
        run = self.start("asked", callbacks=[lambda e: e.step < 4])
        self.assertEqual([e.step for e in run if e.kind == "step"], [1, 2, 3, 4])
        again = dra.Trainer.resume(self.room + "/asked", data=self.text)
        self.assertEqual(next(again).step, 5)
        again.close()

    def test_interrupts_save(self):
        out = python("""
import os, signal, sys, threading, dra
def strike(event):
    if event.step == 3:
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
run = dra.Trainer("dra-delta-tiny", data=sys.argv[1], out=sys.argv[2], steps=100000, batch=2,
                  context=32, seed=5, set={"dim": 48, "depth": 2}, callbacks=[strike])
try:
    run.run()
    print("not interrupted")
except KeyboardInterrupt as e:
    print("interrupted", str(e).split(",")[0])
again = dra.Trainer.resume(sys.argv[2], data=sys.argv[1])
step = next(again).step
print("resumes after", step - 1)
again.close()
""", self.text, self.room + "/cut")
        lines = out.stdout.strip().split("\n")
        self.assertIn("interrupted training was stopped after step", lines[0], out.stdout)
        self.assertEqual(lines[0].split()[-1], lines[1].split()[-1], out.stdout)

    def test_events_are_those_of_tensorboard(self):
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            self.skipTest("no tensorboard")
        losses = [e.loss for e in self.start("board", tensorboard=True) if e.kind == "step"]
        found = EventAccumulator(self.room + "/board")
        found.Reload()
        self.assertIn("train/loss", found.Tags()["scalars"])
        rows = found.Scalars("train/loss")
        self.assertLessEqual(len(rows), len(losses))
        self.assertAlmostEqual(rows[-1].value, losses[rows[-1].step - 1], 5)

    def test_ids_as_data(self):
        ids = dra.Tokenizer().encode(TEXT * 10)
        self.start("ids", data=ids).run()
        self.start("text").run()
        self.same_weights("ids", "text")

    def test_another_memory(self):
        """What a preset says of its memory goes with it, as on the command line."""
        settings = {"mixer.memory": "append", "mixer.retrieval": "time", **SMALL}
        with self.assertWarnsRegex(UserWarning, "dropped mixer.decay.* of the preset dra-delta"):
            m = dra.load("dra-delta-tiny", seed=2, set=settings)
        self.assertNotIn("decay", m.config["mixer"])
        with self.assertWarnsRegex(UserWarning, "dropped mixer.decay"):
            run = self.start("another", set=settings)
        run.run()
        self.assertEqual(run.model().config["mixer"], m.config["mixer"])
        self.refuses(OSError, "did you mean gpt2-tiny?|not downloaded", dra.load, "gpt2-tinny")
        self.refuses(ValueError, "decay", dra.load, "dra-delta-tiny",
                     set={"mixer.memory": "append", "mixer.decay": "data"})

    def test_from_weights(self):
        small("dra-delta-tiny").save(self.room + "/model")
        run = dra.Trainer(self.room + "/model", data=self.text, out=self.room + "/more", steps=1,
                          batch=2, context=32, lr=1e-9)
        run.run()
        a, b = self.weights("model"), self.weights("more")
        for name in a:
            self.assertLess(np.abs(a[name] - b[name]).max(), 1e-6, name)

    @unittest.skipUnless(command(), "no command line: DRA_COMMAND=PATH")
    def test_as_the_command_line(self):
        import subprocess
        subprocess.run([command(), "train", "--preset", "dra-delta-tiny", "--set", "dim=48",
                        "--set", "depth=2", "--data", self.text, "--out", self.room + "/cli",
                        "--steps", "8", "--batch", "2", "--context", "32", "--lr", "1e-3",
                        "--seed", "5"], check=True, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE)
        self.start("run").run()
        self.same_weights("cli", "run")

    def test_refused(self):
        self.refuses(ValueError, "lerning_rate", self.start, "bad", lerning_rate=1)
        self.refuses(ValueError, "lr", self.start, "bad", lr=float("nan"))
        self.refuses(TypeError, "int32|int64", self.start, "bad", data=np.arange(100))
        self.refuses(OSError, "none", self.start, "bad", data=self.room + "/none")
        self.refuses(ValueError, "a model", dra.Trainer, data=self.text, out=self.room + "/x")
        small("dra-delta-tiny").save(self.room + "/never-run")
        for folder in ("never-run", "nowhere"):
            error = self.refuses(OSError, folder + ": expected a run to resume", dra.Trainer.resume,
                                 self.room + "/" + folder, data=self.text)
            self.assertNotIn("preset", str(error))
        run = self.start("busy")
        self.refuses(OSError, "training in", self.start, "busy")
        run.close()
        self.refuses(dra.errors.ClosedError, "closed", run.evaluate)
        self.assertEqual(list(run), [])
        self.assertFalse(os.path.exists(self.room + "/bad"))

    def test_a_state_is_tuned(self):
        """The state that a text starts from: losses fall, the weights stay."""
        from dra.training import TuneEvent
        m, seen = small("dra-delta-tiny"), []
        before = {n: x.copy() for n, x in m.parameters.items()}
        how = dict(batch=4, context=32, seed=3)
        s = m.tune_state(self.text, steps=12, callback=seen.append, **how)
        self.assertIsInstance(seen[0], TuneEvent)
        self.assertEqual([e.step for e in seen], list(range(13)))
        self.assertLess(seen[-1].eval_loss, seen[0].eval_loss - 0.01)
        for name, x in before.items():
            self.same(m.parameters[name], x, name)
        self.assertEqual((s.tokens, float(np.abs(s.logits).max())), (0, 0))
        piece = TEXT[:60]
        self.assertGreater(m.score(piece, state=s).logprob,
                           m.score(piece, state=m.load_state(self.blank(m))).logprob)
        ended = []
        m.tune_state(self.text, start=s, steps=1, callback=ended.append, **how)
        self.assertEqual(ended[0].eval_loss, seen[-1].eval_loss)  # from where it was
        ended.clear()
        m.tune_state(self.text, steps=12, callback=lambda e: ended.append(e) or e.step < 2, **how)
        self.assertEqual(len(ended), 3)
        self.refuses(ValueError, "tune_state|lr", m.tune_state, self.text, lr=float("inf"))
        self.refuses(OSError, "none", m.tune_state, self.room + "/none")
        self.refuses(ValueError, "another model", m.tune_state, self.text,
                     start=small("dra-gru-tiny").state())
        self.refuses(ZeroDivisionError, "zero", m.tune_state, self.text,
                     callback=lambda e: 1 // 0)
        other = dra.load("dra-delta-tiny", seed=3, set=SMALL)
        other.parameters["norm_g"] = 2 * other.parameters["norm_g"]  # not those of any file
        self.assertNotEqual(other.tune_state(self.text, steps=1, **how)["layers.0.mixer.S"].sum(),
                            s["layers.0.mixer.S"].sum())

    def blank(self, m):
        s = m.state()
        s.save(self.room + "/blank")
        return self.room + "/blank"

    @unittest.skipUnless(command(), "no command line: DRA_COMMAND=PATH")
    def test_a_state_is_tuned_as_by_the_command(self):
        folder = self.room + "/delta"
        small("dra-delta-tiny").save(folder)
        run_command("tune-state", "--model", folder, "--data", self.text, "--out",
                    self.room + "/s", "--steps", "4", "--batch", "2", "--context", "32", "--seed",
                    "5", "--threads", "1")
        m = dra.load(folder, threads=1)
        s = m.tune_state(self.text, steps=4, batch=2, context=32, seed=5)
        expected = m.load_state(self.room + "/s")
        self.same_states(s, expected)
        self.assertEqual(m.generate("Once", tokens=8, state=s, temperature=0),
                         m.generate("Once", tokens=8, state=expected, temperature=0))

    @unittest.skipUnless(command(), "no command line: DRA_COMMAND=PATH")
    def test_gradients_of_the_command_line(self):
        import subprocess
        for preset in ("dra-delta-tiny", "dra-gru-tiny"):
            folder = self.room + "/" + preset
            small(preset).save(folder)
            m = dra.load(folder)
            ids = m.tokenizer.encode(TEXT)[:80]
            subprocess.run([command(), "grad", "--model", folder, "--tokens",
                            ",".join(map(str, ids)), "--out", folder + ".grads"], check=True,
                           stdout=subprocess.PIPE)
            theirs, ours = read_tensors(folder + ".grads"), m.grad(ids)
            self.assertEqual(np.float32(ours.loss), theirs.pop("loss"))
            self.assertEqual(sorted(theirs), sorted(ours))
            for name in ours:
                self.same(ours[name], theirs[name], name)


def read_tensors(path):
    """A safetensors file of f32."""
    import json
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            out[name] = np.frombuffer(data[8 + n + a:8 + n + b], np.float32).reshape(t["shape"])
    return out


if __name__ == "__main__":
    unittest.main()
