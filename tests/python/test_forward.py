"""Inputs by name and maps of attention: what `dra forward` writes, bit for bit."""
import os
import unittest

import numpy as np

import dra
from common import SMALL, TEXT, Case, command, read_tensors, run_command, small, write_tensors

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
XT = os.path.join(ROOT, "examples", "x-transformers")
rng = np.random.default_rng(5)


def drawn(m, B=2, T=7):
    """Inputs of a model, drawn."""
    from dra.forward import inputs_of
    out = {}
    for n, i in enumerate(inputs_of(m._model.at)):
        shape = [B, *(T + n if k < 0 else k for k in i.shape)]
        if i.numbers >= 0:
            shape = out[list(out)[-1]].shape
        out[i.name] = (rng.integers(0, i.vocab, shape, np.int32) if i.vocab else
                       rng.standard_normal(shape, np.float32))
    return out


@unittest.skipIf(command() is None, "no command line")
class Named(Case):
    def compare(self, folder, inputs, outputs=None, what=""):
        """m.forward and dra forward --inputs, all that the latter writes."""
        m = dra.load(folder)
        room = self.folder()
        write_tensors(room + "/in", inputs)
        more = ["--outputs", ",".join(outputs)] if outputs else []
        run_command("forward", "--model", folder, "--inputs", room + "/in", "--out", room + "/out",
                    "--unpadded", *more)
        found = m.forward(inputs, attentions="attentions" in (outputs or ()))
        written = read_tensors(room + "/out")
        mine = {**found, **found.attentions}
        self.assertTrue(written, what)
        for name, x in written.items():
            self.same(mine[name], x, "%s: %s" % (what, name))
        return found

    def of_config(self, name):
        folder = self.folder() + "/m"
        run_command("init", "--config", os.path.join(XT, name + ".json"), "--out", folder)
        return folder

    def test_presets(self):
        for preset in ("vit-tiny", "series-tiny", "xt-seq2seq-tiny", "xt-encoder-tiny"):
            with self.subTest(preset=preset):
                folder = self.folder() + "/m"
                m = dra.load(preset, seed=1)
                m.save(folder)
                found = self.compare(folder, drawn(m), what=preset)
                self.assertEqual(set(m.inputs), set(drawn(m)))
                self.assertEqual(len(found["hidden"]), 2)

    def test_every_kind_of_input(self):
        names = [n[:-5] for n in sorted(os.listdir(XT)) if n.endswith(".json")]
        tried = set()
        for name in names:
            folder = self.of_config(name)
            m = dra.load(folder)
            kinds = frozenset(m.inputs) if set(m.inputs) != {"ids"} else None
            if kinds is None or kinds in tried:
                continue
            tried.add(kinds)
            with self.subTest(config=name):
                self.compare(folder, drawn(m), what=name)
        inputs = set().union(*tried)
        self.assertEqual(inputs, {"ids", "src", "x", "img", "nums", "prepend", "context"})

    def test_a_condition(self):
        folder = self.folder() + "/m"
        m = dra.load("gpt2-tiny", set={"depth": 1, "norm": "rms", "norm_gain": "condition"})
        m.save(folder)
        self.assertEqual(m.inputs["condition"], (192,))
        self.compare(folder, drawn(m))

    def test_masks(self):
        folder = self.folder() + "/m"
        m = dra.load("xt-seq2seq-tiny", seed=1)
        m.save(folder)
        inputs = drawn(m)
        inputs["src_mask"] = np.ones(inputs["src"].shape, np.bool_)
        inputs["src_mask"][1, -3:] = False
        inputs["tgt_mask"] = np.ones(inputs["ids"].shape, np.bool_)
        inputs["tgt_mask"][0, -2:] = False
        found = self.compare(folder, inputs, ["hidden"])
        short = {"src": inputs["src"][:1], "tgt": inputs["ids"][:1, :-2]}
        alone = m.forward(short)
        self.near(found["logits"][0, :-2], alone["logits"][0], 1e-5)
        self.near(found.state.logits[0], alone.state.logits, 1e-5)

    def test_a_context_is_read_once(self):
        m = dra.load("xt-seq2seq-tiny", seed=1)
        inputs = drawn(m)
        whole = m.forward(inputs)
        first = m.forward({"src": inputs["src"], "tgt": inputs["ids"][:, :3]})
        rest = m.forward({"tgt": inputs["ids"][:, 3:]}, first.state)
        self.same(np.concatenate([first["logits"], rest["logits"]], 1), whole["logits"])
        self.same_states(rest.state, whole.state)
        self.refuses(LookupError, "src is missing", m.forward, {"tgt": inputs["ids"]})

    def test_maps(self):
        for preset in ("gpt2-tiny", "dra-slots-tiny", "hybrid-tiny", "xt-modern-tiny"):
            with self.subTest(preset=preset):
                folder = self.folder() + "/m"
                m = dra.load(preset, seed=1)
                m.save(folder)
                room = self.folder()
                run_command("forward", "--model", folder, "--text", TEXT[:40], "--out",
                            room + "/out", "--outputs", "attentions,logits")
                found = m(TEXT[:40], attentions=True)
                written = read_tensors(room + "/out")
                written.pop("lengths", None)
                self.same(found.logits, written.pop("logits"))
                self.assertEqual(set(found.attentions), set(written))
                for name, x in written.items():
                    self.same(found.attentions[name], x, name)

    def test_maps_of_two_texts(self):
        folder = self.of_config("encoder-decoder")
        found = self.compare(folder, drawn(dra.load(folder)), ["attentions"])
        self.assertTrue([n for n in found.attentions if "cross" in n])


class Alone(Case):
    def test_maps_are_weights(self):
        m = dra.load("gpt2-tiny", seed=1)
        found = m("Once upon a time", attentions=True)
        self.assertEqual(len(found.attentions), 4)
        for name, x in found.attentions.items():
            self.assertEqual(x.shape, (6, 16, 16))
            self.assertEqual(np.abs(np.triu(x[0], 1)).max(), 0)
            self.near(x.sum(-1), np.ones((6, 16)), 1e-5, name)
        s = m.read("Once upon a")
        later = m(" time", state=s, attentions=True)
        self.same(later.attentions["layers.0.attention"],
                  found.attentions["layers.0.attention"][:, 11:])
        self.same(later.logits, found.logits[11:])
        self.assertEqual(dict(m("Once").attentions), {})

    def test_refused(self):
        m = dra.load("vit-tiny", seed=1)
        x = np.zeros((2, 1, 8, 8), np.float32)
        self.refuses(LookupError, "img is missing|(B, 1, 8, 8)", m.forward, {})
        self.refuses(LookupError, "pixels is no input", m.forward, {"img": x, "pixels": x})
        self.refuses(ValueError, "expected (B, 1, 8, 8), found (2, 8, 8)", m.forward,
                     {"img": x[:, 0]})
        self.refuses(TypeError, "float64", m.forward, {"img": x.astype(float)})
        self.refuses(ValueError, "NaN", m.forward, {"img": np.full_like(x, np.nan)})
        self.refuses(ValueError, "m.forward", m, "a text")
        self.refuses(ValueError, "no state", m.forward, {"img": x}, m.state(2))
        s = dra.load("xt-seq2seq-tiny")
        ids = np.zeros((1, 3), np.int32)
        self.refuses(IndexError, "found 100000", s.forward, {"src": ids + 100000, "tgt": ids})
        self.refuses(ValueError, "2 rows|state has 1", s.forward,
                     {"src": ids.repeat(2, 0), "tgt": ids.repeat(2, 0)}, s.state())
        self.refuses(ValueError, "expected (1, 3)", s.forward,
                     {"src": ids, "tgt": ids, "mask": np.ones((1, 4), bool)})
        self.refuses(ValueError, "one of ids and tgt", s.forward,
                     {"src": ids, "tgt": ids, "ids": ids})
        self.refuses(ValueError, "one of src_mask and mask", s.forward,
                     {"src": ids, "tgt": ids, "mask": ids, "src_mask": ids})

    def test_maps_that_are_none(self):
        m = small("rwkv4-tiny")
        s = m.read([1, 2])
        before = s.fork()
        self.refuses(ValueError, "has none", m, [3], attentions=True)
        self.refuses(ValueError, "has none", m, [3], state=s, attentions=True)
        self.refuses(ValueError, "has none", m.forward, {"ids": [[3]]}, s, attentions=True)
        self.assertEqual(s.tokens, 2)
        self.same_states(s, before)

    def test_kinds_of_masks(self):
        m = dra.load("xt-seq2seq-tiny", seed=1)
        inputs = drawn(m)
        mask = rng.integers(0, 2, inputs["src"].shape)
        mask[:, 0] = 1
        first, *others = (m.forward(dict(inputs, mask=mask.astype(kind)))["logits"]
                          for kind in (np.bool_, np.uint8, np.int64))
        for other in others:
            self.same(first, other)
        self.refuses(TypeError, "whole numbers|float32", m.forward,
                     dict(inputs, mask=mask.astype(np.float32)))

    def test_of_a_language_model(self):
        m = dra.load("dra-gru-tiny", seed=1, set=SMALL)
        ids = m.tokenizer.encode("Once upon")[None]
        found = m.forward({"ids": ids})
        self.same(found["logits"][0], m("Once upon").logits)
        self.same_states(found.state, m.read("Once upon"))
        reset = np.zeros(ids.shape, bool)
        reset[0, 5] = True
        again = m.forward({"ids": ids, "reset": reset})
        self.near(again["logits"][0, 5:], m("upon").logits, 1e-5)


if __name__ == "__main__":
    unittest.main()
