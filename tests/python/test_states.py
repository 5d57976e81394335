"""States as values: tensors by name, files, copies, and what is refused."""
import copy
import gc
import os
import pickle
import unittest

import numpy as np

import dra
from common import TEXT, Case, command, python, small

S = "layers.0.mixer.S"


class Tensors(Case):
    def setUp(self):
        self.m = small("dra-delta-tiny")

    def test_views_are_the_memory(self):
        s = self.m.read("Once upon")
        view, before = s[S], s[S].copy()
        self.m.read(" a time", s)
        self.assertFalse((view == before).all())
        self.same(view, s[S])
        t = s.fork()
        view[...] = 0
        self.assertEqual(float(np.abs(s[S]).max()), 0)
        self.assertNotEqual(float(np.abs(t[S]).max()), 0)
        self.m.generate(tokens=3, state=s)  # its memory stays where it is
        self.same(view, s[S])
        self.assertNotEqual(float(np.abs(view).max()), 0)

    def test_views_outlive_what_they_show(self):
        m = dra.load("dra-delta-tiny", seed=3)
        s = m.read("Once upon")
        view, w = s[S], m.parameters["embedding"]
        before = view.copy(), w.copy()
        m.close()
        del s, m
        gc.collect()
        self.same(view, before[0])
        self.same(w, before[1])

    def test_caches_in_bf16(self):
        full, m = (dra.load("gpt2-tiny", seed=3, cache=c) for c in ("f32", "bf16"))
        s = m.read("Once upon")
        keys = s["layers.0.mixer.K"]
        bits = keys.astype(np.float32).view(np.uint32)
        self.assertFalse((bits & 0xffff).any())
        t = m.read(" upon", m.read("Once"))
        self.same(keys, t["layers.0.mixer.K"])
        self.same(m.load_state(s.to_bytes())["layers.1.mixer.V"], s["layers.1.mixer.V"])
        self.assertLess(len(s.to_bytes()), len(full.read("Once upon").to_bytes()))
        with self.assertRaisesRegex(dra.DraError, "the model's cache is"):
            full.load_state(s.to_bytes())
        with self.assertRaisesRegex(dra.DraError, "cache is in bf16|no gradient"):
            m.grad("Once upon a time")
        with self.assertRaisesRegex(dra.DraError, "no cache that grows"):
            dra.load("rwkv4-tiny", cache="bf16")
        with self.assertRaisesRegex(dra.DraError, "cache is 'f32' or 'bf16'"):
            dra.load("gpt2-tiny", cache="q8")

    def test_items_are_copies(self):
        m = small("dra-gru-tiny")
        s = m.read("Once upon")
        keys = s["layers.0.mixer.K"]
        self.assertEqual(keys.shape[0], 9)
        keys[...] = 0
        self.assertNotEqual(float(np.abs(s["layers.0.mixer.K"]).max()), 0)

    def test_setting_changes_what_follows(self):
        s = self.m.read("Once upon")
        t = s.fork()
        t[S] = s[S] * np.float32(0.5)
        self.same(t[S], s[S] * np.float32(0.5))
        self.assertFalse((self.m("x", state=t).logits == self.m("x", state=s).logits).all())

    def test_rows(self):
        ids = np.resize(self.m.tokenizer.encode(TEXT), (2, 10))
        s = self.m.read(ids)
        self.assertEqual((s.batch, s[S].shape[0]), (2, 2))
        self.same(s[S][1], self.m.read(ids[1])[S])
        s[S] = np.zeros_like(s[S])
        self.assertEqual(float(np.abs(s[S]).max()), 0)

    def test_reset(self):
        s = self.m.read("Once upon")
        self.same(self.m("x", state=s.reset()).logits, self.m("x").logits)

    def test_refused(self):
        s = self.m.read("Once")
        self.refuses(LookupError, "no tensor|" + S, lambda: s["nothing"])
        self.refuses(TypeError, "float32|float64", s.__setitem__, S, np.zeros(s[S].shape))
        self.refuses(ValueError, "shape|(3,)", s.__setitem__, S, np.zeros(3, np.float32))
        self.refuses(ValueError, "finite", s.__setitem__, S, np.full_like(s[S], np.nan))
        self.refuses(TypeError, "array|list", s.__setitem__, S, [1.0])
        self.refuses(ValueError, "read nothing", lambda: self.m.state().logits)
        self.assertIn(S, s)
        self.assertNotIn("nothing", s)

    def test_dlpack(self):
        s = self.m.read("Once")
        other = np.from_dlpack(s[S])
        self.assertTrue(np.shares_memory(other, s[S]))

        class Foreign:  # an array of another library
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **asked):
                return self.array.__dlpack__(**asked)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        ids = self.m.tokenizer.encode("Once upon")
        self.same(self.m(Foreign(ids)).logits, self.m(ids).logits)


class Belonging(Case):
    def test_another_model(self):
        a, b = small("dra-delta-tiny"), dra.load("dra-delta-tiny", seed=9)
        s = a.read("Once")
        self.refuses(ValueError, "another model", b.read, "x", s)
        self.refuses(ValueError, "another model", b.generate, tokens=3, state=s)
        self.refuses(ValueError, "expected", b.load_state, s)
        self.refuses(ValueError, "expected", b.read, "x", pickle.loads(pickle.dumps(s)))
        self.assertEqual(s.tokens, 4)

    def test_a_closed_model(self):
        m = dra.load("dra-delta-tiny")
        s = m.read("Once")
        stream = m.stream("x", tokens=5)
        next(stream)
        m.close()
        m.close()
        self.assertTrue(m.closed)
        for f in (lambda: m("x"), lambda: m.read("x", s), lambda: m.generate("x"), s.fork,
                  lambda: s[S], lambda: s.tokens, lambda: s.save("nowhere"), m.state,
                  lambda: m.parameters["embedding"], lambda: m.grad("abc"), lambda: next(stream)):
            self.refuses(dra.errors.ClosedError, "closed", f)
        self.assertIn("closed", repr(m))
        self.assertIn("closed", repr(s))
        with dra.load("dra-delta-tiny") as other:
            pass
        self.assertTrue(other.closed)

    def test_unpickled_states_belong_to_nothing_yet(self):
        m = small("dra-delta-tiny")
        s = pickle.loads(pickle.dumps(m.read("Once")))
        self.refuses(ValueError, "unpickled", lambda: s.tokens)
        self.assertIn("unpickled", repr(s))
        again = pickle.loads(pickle.dumps(s))
        m.read(" upon", again)
        self.same_states(again, m.read(" upon", m.read("Once")))

    def test_copies(self):
        m = small("dra-delta-tiny")
        s = m.read("Once")
        self.same(m("x", state=copy.deepcopy(s)).logits, m("x", state=s.fork()).logits)

    def test_handles_are_not_pickled(self):
        m = small()
        for thing in (m, m.tokenizer, m._model):
            with self.assertRaisesRegex(TypeError, "cannot be pickled"):
                pickle.dumps(thing)
            with self.assertRaisesRegex(TypeError, "cannot be"):
                copy.copy(thing)

    def test_forked_processes_are_told(self):
        out = python("""
import os, sys, dra
m = dra.load("dra-delta-tiny")
s = m.read("Once")
if os.fork() == 0:
    for f in (lambda: m("x"), lambda: s.tokens, lambda: m.tokenizer.encode("x")):
        try:
            f()
            os._exit(1)
        except dra.errors.ClosedError as e:
            if "forked" not in str(e): os._exit(2)
    n = dra.load("dra-delta-tiny")
    if (n("x").logits.shape) != (1, 256): os._exit(3)
    del m, s, n
    os._exit(0)
_, status = os.wait()
print("child", os.WEXITSTATUS(status), m("x", state=s).state.tokens)
""")
        self.assertEqual(out.stdout.split()[-3:], ["child", "0", "5"], out.stdout)


class Files(Case):
    def test_damaged_files(self):
        m = small("dra-delta-tiny")
        path = self.folder() + "/state"
        s = m.read("Once upon a time")
        s.save(path)
        with open(path, "rb") as f:
            good = f.read()
        self.refuses(OSError, "state", m.load_state, path + ".none")
        for bad in (b"", good[:100], good[:-1], good[:2000] + b"\xff" + good[2001:]):
            with self.assertRaises(dra.DraError):
                m.load_state(bad)
        with self.assertRaises(dra.DraError):
            m.load_state(path + "\0")
        self.same_states(m.load_state(good), s)

    @unittest.skipUnless(command(), "no command line: DRA_COMMAND=PATH")
    def test_files_of_the_command_line(self):
        import subprocess
        folder = self.folder()
        small("dra-delta-tiny").save(folder + "/model")
        m = dra.load(folder + "/model")
        subprocess.run([command(), "generate", "--model", folder + "/model", "--prompt", "Once",
                        "--tokens", "5", "--temperature", "0", "--state-out", folder + "/a"],
                       check=True, stdout=subprocess.PIPE)
        s = m.load_state(folder + "/a")
        self.assertEqual(s.tokens, 9)
        mine = m.read("Once")
        ours = m.generate(tokens=5, state=mine, temperature=0)
        self.same_states(mine, s)
        mine.save(folder + "/b")
        more = subprocess.run([command(), "generate", "--model", folder + "/model", "--prompt", "x",
                               "--tokens", "5", "--temperature", "0", "--state-in",
                               folder + "/b", "--raw"], check=True, stdout=subprocess.PIPE).stdout
        text = m.generate("x", tokens=5, state=mine, temperature=0)
        self.assertIn(text.encode(), more)
        self.assertIsInstance(ours, str)
        self.assertTrue(os.path.exists(folder + "/b"))


if __name__ == "__main__":
    unittest.main()
