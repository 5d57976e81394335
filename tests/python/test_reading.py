"""State exactness through Python: whole = in parts = token by token = resumed."""
import pickle
import unittest

import numpy as np

import dra
from common import TEXT, Case, language_presets, small


class Exactness(Case):
    def parts(self, m, ids, lengths):
        """Logits and the state after reading in parts of these lengths, then the rest."""
        s, at, out = m.state(), 0, []
        for n in list(lengths) + [len(ids)]:
            part = ids[at:at + n]
            if len(part):
                out.append(m(part, state=s).logits)
            at += len(part)
        return np.concatenate(out), s

    def test_every_preset(self):
        for name in language_presets():
            with self.subTest(preset=name):
                m = dra.load(name, seed=5)
                ids = np.resize(m.tokenizer.encode(TEXT), 150)
                whole = m(ids)
                cuts = {"parts": [7, 1, 64, 30], "tokens": [1] * 150, "aligned": [64, 64]}
                for what, lengths in cuts.items():
                    logits, s = self.parts(m, ids, lengths)
                    exact = m.cut and all(c % m.cut == 0 for c in np.cumsum(lengths) if c < 150)
                    if exact:
                        self.same(logits, whole.logits, "%s: %s" % (name, what))
                        self.same_states(s, whole.state, "%s: %s" % (name, what))
                    else:
                        self.near(logits, whole.logits, 5e-5, "%s: %s" % (name, what))

    def test_resumed(self):
        folder = self.folder()
        for name in ("dra-gru-tiny", "dra-delta-tiny", "gpt2-tiny", "rwkv4-tiny"):
            m = dra.load(name, seed=5)
            ids = np.resize(m.tokenizer.encode(TEXT), 128)
            whole = m(ids)
            first = m.read(ids[:64])
            first.save(folder + "/state")
            ways = {"fork": first.fork(), "file": m.load_state(folder + "/state"),
                    "bytes": m.load_state(first.to_bytes()),
                    "pickle": pickle.loads(pickle.dumps(first))}
            for what, s in ways.items():
                rest = m(ids[64:], state=s)
                self.same(rest.logits, whole.logits[64:], "%s: %s" % (name, what))
                self.same_states(s, whole.state, "%s: %s" % (name, what))
            self.assertEqual(first.tokens, 64)

    def test_another_load_of_the_same_weights(self):
        folder = self.folder() + "/model"
        small().save(folder)
        a, b = dra.load(folder), dra.load(folder)
        s = a.read("Once upon")
        t = b.load_state(s)
        self.same(a(" a time", state=s).logits, b(" a time", state=t).logits)

    def test_read_is_the_call(self):
        m = small()
        a, b = m.read(TEXT), m(TEXT).state
        self.same_states(a, b)
        self.same(a.logits, m(TEXT).logits[-1])

    def test_long_texts_are_read_in_pieces(self):
        m = small("dra-delta-tiny")
        ids = np.resize(m.tokenizer.encode(TEXT), 1300)
        whole, s = m(ids), m.state()
        parts = np.concatenate([m(ids[a:a + 320], state=s).logits for a in range(0, 1300, 320)])
        self.same(parts, whole.logits)
        for keep in (1, 5, 300, 900, 5000):
            self.same(m(ids, keep=keep).logits, whole.logits[-keep:], "keep %d" % keep)

    def test_rows_are_as_alone(self):
        m = small()
        ids = np.resize(m.tokenizer.encode(TEXT), (3, 40))
        both = m(ids)
        for b in range(3):
            alone = m(ids[b])
            self.same(both.logits[b], alone.logits)
            self.same(both.hidden[b], alone.hidden)
        self.assertEqual(both.state.batch, 3)
        self.same(both.state.logits, both.logits[:, -1])

    def test_threads_give_the_same_bits(self):
        results = [dra.load("dra-delta-tiny", seed=5, threads=n)(TEXT).logits for n in (1, 2, 3)]
        self.same(results[0], results[1])
        self.same(results[0], results[2])


class Questions(Case):
    def test_scores_are_log_probabilities(self):
        m = small()
        ids = m.tokenizer.encode("Once upon a time")
        logits = m(ids).logits.astype(float)
        shifted = logits - logits.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        expected = logs[np.arange(len(ids) - 1), ids[1:]]
        score = m.score("Once upon a time")
        self.assertEqual(score.tokens, len(ids) - 1)
        self.near(score.logprobs, expected, 1e-5)
        self.assertAlmostEqual(score.logprob, expected.sum(), 3)
        self.assertAlmostEqual(score.perplexity, np.exp(-expected.mean()), 2)

    def test_scores_after_a_state(self):
        m = small()
        s = m.read("Once upon")
        rest, alone = m.score([" a time", " a tide"], state=s), m.score("Once upon a time")
        self.assertEqual([r.tokens for r in rest], [7, 7])
        self.near(rest[0].logprobs, alone.logprobs[-7:], 1e-5)
        self.assertNotEqual(rest[0].logprob, rest[1].logprob)
        self.assertEqual(s.tokens, 9)

    def test_embeddings(self):
        m = small()
        hidden = m("Once upon a time").hidden.astype(float)
        self.near(m.embed("Once upon a time"), hidden.mean(axis=0), 1e-6)
        self.near(m.embed("Once upon a time", pool="last"), hidden[-1], 1e-6)
        self.assertEqual(m.embed(["a", "bc", "d"]).shape, (3, 48))

    def test_encoders_read_texts_as_a_whole(self):
        m = dra.load("xt-encoder-tiny", tokenizer=dra.Tokenizer())
        self.assertEqual(m.embed("Once upon").shape, (192,))
        out = m("Once upon a time")
        self.assertEqual(out.logits.shape[0], 16)
        self.refuses(ValueError, "whole", m.read, "more", out.state)
        self.refuses(ValueError, "left to right", m.generate, "Once")


class Gradients(Case):
    def test_central_differences(self):
        """In f32 the loss has few digits, so only the largest gradients are looked at."""
        m = dra.load("dra-delta-tiny", seed=2, set={"dim": 48, "depth": 1})
        ids = m.tokenizer.encode("Once upon a time")
        g = m.grad(ids)
        self.assertAlmostEqual(g.loss, -m.score(ids).logprob / (len(ids) - 1), 4)
        self.assertEqual(list(g), list(m.parameters))
        for name in ("embedding", "layers.0.ff.W_1"):
            if name not in g:
                continue
            at = np.unravel_index(np.abs(g[name]).argmax(), g[name].shape)
            now, losses = m.parameters[name].copy(), []
            for step in (1e-2, -1e-2):
                moved = now.copy()
                moved[at] += np.float32(step)
                m.parameters[name] = moved
                losses.append(-m.score(ids).logprobs.mean())
            m.parameters[name] = now
            self.near((losses[0] - losses[1]) / 2e-2, g[name][at], 2e-2, name)

    def test_targets(self):
        m = small()
        ids = np.resize(m.tokenizer.encode(TEXT), (2, 20))
        goal = np.full((2, 20), -1, np.int32)
        goal[:, :-1] = ids[:, 1:]
        a, b = m.grad(ids), m.grad(ids, targets=goal)
        self.assertEqual(a.loss, b.loss)
        for name in a:
            self.same(a[name], b[name], name)
        goal[0] = -1
        self.assertEqual(m.grad(ids, targets=goal).loss, m.grad(ids[1]).loss)


if __name__ == "__main__":
    unittest.main()
