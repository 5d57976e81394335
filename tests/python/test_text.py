"""Text: tokenizers, generation, streams, grammars, chats."""
import json
import os
import shutil
import threading
import unittest

import numpy as np

import dra
from common import TEXT, Case, small

DRAWN = {"temperature": 0.9, "seed": 7, "ignore_end": True}


class Tokenizers(Case):
    def test_round_trips(self):
        t = dra.Tokenizer()
        for text in ("", "a", "héllo", "\0 \n", "日本語", "a" * 5000):
            self.assertEqual(t.decode(t.encode(text)), text)
        self.assertEqual(t.piece(65), b"A")
        self.assertEqual(t.piece(0), b"\0")
        self.assertEqual(t.decode([0xE6, 0x97]), "\ufffd")
        self.assertEqual(t.decode(65), "A")
        self.assertIsNone(t.end)
        self.assertEqual(t.id("A"), 65)

    def test_learned(self):
        folder = self.folder()
        with open(folder + "/text", "w") as f:
            f.write(TEXT * 20)
        t = dra.tokenizer.train([folder + "/text"], 300, special=["<|endoftext|>"])
        self.assertEqual(t.decode(t.encode(TEXT)), TEXT)
        self.assertLess(len(t.encode(TEXT)), len(TEXT))
        self.assertEqual(t.decode(t.encode("a<|endoftext|>"), skip_special=True), "a")
        self.assertEqual(list(t.encode("<|endoftext|>")), [t.end])
        self.assertGreater(len(t.encode("<|endoftext|>", special=False)), 1)
        t.save(folder + "/tokenizer.json")
        self.same(dra.Tokenizer(folder + "/tokenizer.json").encode(TEXT), t.encode(TEXT))

    def test_begins_texts(self):
        kept = os.path.join(os.path.dirname(__file__), "../data/tokenizers/llama3/tokenizer.json")
        folder = self.folder()
        dra.load("dra-gru-tiny", set={"vocab": 611, "dim": 12, "heads": 2, "depth": 1}).save(folder)
        shutil.copy(kept, folder)
        m = dra.load(folder)
        t = m.tokenizer
        plain, begun = t.encode("one two"), t.encode("one two", begin=True)
        self.assertEqual(list(begun), [t.id("<|begin_of_text|>"), *plain])
        s = m.read("one two")
        self.assertEqual(s.tokens, len(begun))
        m.read("one two", s)  # goes on: nothing comes in front
        self.assertEqual(s.tokens, len(begun) + len(plain))
        self.assertEqual(m.score("one two").tokens, len(plain))
        self.assertEqual(m.generate("one two", tokens=4),
                         m.generate("", tokens=4, state=m.read(begun)))

    def test_refused(self):
        t = dra.Tokenizer()
        self.refuses(IndexError, "256", t.decode, [256])
        self.refuses(IndexError, "no token", t.piece, 256)
        self.refuses(OSError, "none", dra.Tokenizer, "/none")
        self.refuses(ValueError, "one file", dra.tokenizer.train, [], 300)
        with self.assertRaises(TypeError):
            t.encode(b"bytes")


class Writing(Case):
    def test_the_same_seed_gives_the_same_text(self):
        m = small("dra-delta-tiny")
        a, b, c = (m.generate("Once", tokens=30, temperature=0.9, seed=s) for s in (7, 7, 8))
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)

    def test_streams_equal_calls(self):
        m = small("dra-delta-tiny")
        for options in (DRAWN, {"temperature": 0, "ignore_end": True}):
            s, t = m.read("Once"), m.read("Once")
            whole = m.generate(tokens=40, state=s, **options)
            pieces = list(m.stream(tokens=40, state=t, **options))
            self.assertEqual("".join(pieces), whole)
            self.assertGreater(len(pieces), 5)
            self.same_states(s, t)
            self.assertEqual(s.tokens, 44)

    def test_ids_give_ids(self):
        m = small("dra-delta-tiny")
        ids = m.generate(m.tokenizer.encode("Once"), tokens=20, **DRAWN)
        self.assertEqual((ids.dtype, ids.shape), (np.dtype(np.int32), (20,)))
        self.assertEqual(m.tokenizer.decode(ids), m.generate("Once", tokens=20, **DRAWN))
        self.same(list(m.stream(m.tokenizer.encode("Once"), tokens=20, **DRAWN)), ids.astype(int))

    def test_leaving_a_stream(self):
        """The state has then read what was handed out and nothing else."""
        m = small("dra-delta-tiny")
        prompt = m.tokenizer.encode("Once")
        s, taken = m.state(), []
        for token in m.stream(prompt, tokens=50, state=s, **DRAWN):
            taken.append(token)
            if len(taken) == 6:
                break
        self.assertEqual(s.tokens, 10)
        t = m.read(prompt)
        for token in taken:
            m.read([token], t)
        self.same_states(s, t)
        rest = m.generate(tokens=44, state=s, **DRAWN)
        self.assertEqual(m.tokenizer.decode(taken) + rest, m.generate("Once", tokens=50, **DRAWN))

    def test_streams_in_turns(self):
        m = small("dra-delta-tiny")
        a, b = m.stream("Once", tokens=20, **DRAWN), m.stream("Then", tokens=20, **DRAWN)
        texts = ["", ""]
        for x, y in zip(a, b):
            texts[0] += x
            texts[1] += y
            m.read("in between")
        texts = [texts[0] + "".join(a), texts[1] + "".join(b)]
        self.assertTrue(m.generate("Then", tokens=20, **DRAWN).startswith(texts[1][:5]))
        self.assertTrue(m.generate("Once", tokens=20, **DRAWN).startswith(texts[0][:5]))

    def test_lists_are_as_alone(self):
        m = small("dra-delta-tiny")
        prompts = ["Once", "Then what", "x"]
        self.assertEqual(m.generate(prompts, tokens=15, **DRAWN),
                         [m.generate(p, tokens=15, **DRAWN) for p in prompts])

    def test_stop_strings(self):
        m = small("dra-delta-tiny")
        whole = m.generate("Once", tokens=60, temperature=0.5, seed=1)
        stop = whole[20:22]
        s = m.state()
        stream = m.stream("Once", tokens=60, temperature=0.5, seed=1, stop=stop, state=s)
        text = "".join(stream)
        self.assertEqual(text, whole[:whole.index(stop)])
        self.assertEqual(stream.finish, "stop")

    def test_grammars(self):
        m = small("dra-delta-tiny")
        text = m.generate("Once", tokens=50, grammar='root ::= "yes" | "no"', seed=2)
        self.assertIn(text, ("yes", "no"))
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2, 3]}}, "required": ["a"]}
        self.assertIn(json.loads(m.generate("Once", tokens=50, schema=schema))["a"], (1, 2, 3))
        self.refuses(ValueError, "grammar", m.generate, "x", grammar="root ::= (")
        self.refuses(ValueError, "both", m.generate, "x", grammar="root ::= \"a\"", schema={})

    def test_bias(self):
        m = small("dra-delta-tiny")
        self.assertEqual(m.generate("Once", tokens=3, bias={65: 1000.0}), "AAA")

    def test_chats(self):
        m = small("dra-delta-tiny")
        self.assertEqual(m.chat("Hello", tokens=10, seed=1),
                         m.generate("User: Hello\n\nAssistant:", tokens=10, seed=1,
                                    stop="\n\nUser:"))
        self.refuses(dra.errors.UnknownName, "none", m.chat, "Hello", template="none")
        a = m.chat("Hello", template="chatml", tokens=10, seed=1)
        b = m.generate("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", tokens=10,
                       seed=1)
        self.assertEqual(a, b)
        self.refuses(ValueError, "role", m.chat, [{"content": "x"}], template="chatml")

    def test_refused(self):
        m = small("dra-delta-tiny")
        with self.assertRaisesRegex(TypeError, "no option 'temprature'.*temperature"):
            m.generate("x", temprature=1)
        self.refuses(ValueError, "top_p|2", m.generate, "x", top_p=2)
        self.refuses(ValueError, "tokens", m.generate, "x", tokens=-1)
        self.refuses(ValueError, "empty", m.generate, "")
        self.refuses(ValueError, "prompt", m.generate)
        self.refuses(ValueError, "nothing", m.generate, state=m.state())
        self.refuses(ValueError, "one sequence|2", m.generate, state=m.read([[1], [2]]))
        self.assertEqual(m.generate("x", tokens=0), "")

    def test_weights_that_are_not_finite(self):
        m = dra.load("dra-delta-tiny", set={"dim": 48, "depth": 1})
        m.parameters["embedding"]
        s = m.read("Once")
        s[S][...] = np.nan  # a view may be set to anything
        for f in (lambda: m.generate("x", state=s), lambda: m.score("xy", state=s)):
            try:
                f()
            except ValueError as e:
                self.assertIsInstance(e, dra.DraError)

    def test_learned_positions_end(self):
        m = dra.load("gpt2-tiny")
        s = m.read(np.zeros(250, np.int32))
        self.refuses(ValueError, "250|256", m.read, np.zeros(7, np.int32), s)
        self.assertEqual(s.tokens, 250)
        stream = m.stream(tokens=100, state=s, ignore_end=True, temperature=0)
        list(stream)
        self.assertEqual(stream.finish, "context")


S = "layers.0.mixer.S"


class Threads(Case):
    def test_two_models_in_two_threads(self):
        models = [dra.load(p, seed=4) for p in ("dra-delta-tiny", "rwkv4-tiny")]
        alone = [m.generate("Once", tokens=30, **DRAWN) for m in models]
        self.both([lambda m=m: m.generate("Once", tokens=30, **DRAWN) for m in models], alone)

    def test_one_model_in_two_threads(self):
        m = small("dra-delta-tiny")
        alone = m.generate("Once", tokens=30, **DRAWN)
        self.both([lambda: m.generate("Once", tokens=30, **DRAWN)] * 2, [alone] * 2)
        logits = m(TEXT).logits
        self.both([lambda: m(TEXT).logits.tobytes()] * 3, [logits.tobytes()] * 3)

    def both(self, calls, expected):
        found = [None] * len(calls)

        def run(i):
            found[i] = calls[i]()

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(found, expected)


if __name__ == "__main__":
    unittest.main()
