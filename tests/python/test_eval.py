"""dra.eval: lm-eval's tasks get the numbers of m.score, and read what contexts share once."""
import json
import os
import subprocess
import sys
import unittest

import numpy as np

import dra
from common import SMALL, TEXT, Case

try:
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    import lm_eval
    from lm_eval.api.instance import Instance
    import dra.eval as E
except ImportError:
    lm_eval = None

LONG = (TEXT * 4).rstrip()  # lm-eval moves spaces at the end to what follows
QUESTIONS = [{"question": LONG + q, "choices": [" yes", " no", " who knows"], "answer": i % 3}
             for i, q in enumerate(("Was it there?", "Was it here?", "Did they ask?", "Why?"))]
ROLLING = {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_choice": None,
           "doc_to_target": "{{question}}", "metric_list": [{"metric": "word_perplexity"}]}
WRITTEN = {"output_type": "generate_until", "doc_to_choice": None,
           "doc_to_target": "{{choices[answer]}}",
           "generation_kwargs": {"until": ["\n"], "max_gen_toks": 6, "do_sample": False,
                                 "temperature": 0.0},
           "metric_list": [{"metric": "exact_match", "aggregation": "mean",
                            "higher_is_better": True}]}


def ask(kind, *args):
    return Instance(request_type=kind, doc={}, arguments=args, idx=0)


@unittest.skipIf(lm_eval is None, "no lm-eval")
class Numbers(Case):
    def setUp(self):
        self.m = dra.load("dra-delta-tiny", seed=2, set=SMALL)
        self.lm = E.DraLM(model=self.m)

    def scores(self, *pairs):
        return self.lm.loglikelihood([ask("loglikelihood", *p) for p in pairs], disable_tqdm=True)

    def test_are_those_of_score(self):
        pairs = [(LONG + q, a) for q in (" one?", " one or two?", "")
                 for a in (" a", " river", "!")]
        for (context, rest), (found, _) in zip(pairs, self.scores(*pairs)):
            expected = self.m.score(rest, state=self.m.read(context))
            self.assertEqual(found, expected.logprob, (context[-9:], rest))

    def test_shared_contexts_are_read_once(self):
        read, before = [], dra.Model.read
        self.addCleanup(setattr, dra.Model, "read", before)
        dra.Model.read = lambda m, ids, state=None: read.append(len(ids)) or before(m, ids, state)
        self.scores(*[(LONG + q, a) for q in ("one?", "two?") for a in (" a", " b", " c")])
        self.assertLess(sum(read), len(LONG) + 200)
        self.assertGreater(sum(read), len(LONG))

    def test_greedy(self):
        ids = self.lm.tok_encode("Once")
        likely = self.m.generate(ids, tokens=5, temperature=0, ignore_end=True).tolist()
        other = [*likely[:3], (likely[3] + 1) % 256, likely[4]]
        found = self.lm._loglikelihood_tokens([(None, ids, likely), (None, ids, other)], True)
        self.assertEqual([greedy for _, greedy in found], [True, False])

    def test_without_a_context(self):
        self.assertEqual(self.scores(("", "Once"))[0][0], self.m.score("Once").logprob)
        found = self.lm.loglikelihood_rolling([ask("loglikelihood_rolling", TEXT)], True)
        self.assertAlmostEqual(found[0], self.m.score(TEXT).logprob, 3)
        self.assertEqual(self.lm.loglikelihood_rolling([ask("loglikelihood_rolling", "")], True),
                         [0])

    def test_prefixes(self):
        """A shorter context inside longer ones, and the same twice."""
        contexts = [tuple(self.lm.tok_encode(t)) for t in ("a", "ab", LONG, LONG[:900], "ab", "b")]
        found = dict(E.read_shared(self.m, contexts))
        self.assertEqual(set(found), set(contexts))
        for ids, state in found.items():
            self.same_states(state, self.m.read(list(ids)))

    def test_positions(self):
        m = dra.load("gpt2-tiny", set={"context": 64, "depth": 1})
        lm = E.DraLM(model=m)
        with open(os.devnull, "w") as sink:
            before, sys.stderr = sys.stderr, sink
            try:
                found = lm.loglikelihood([ask("loglikelihood", LONG, " end")], True)
            finally:
                sys.stderr = before
        ids = m.tokenizer.encode(LONG + " end")
        self.assertEqual(found[0][0], m.score(ids[-4:], state=m.read(ids[-65:-4])).logprob)
        whole = lm.loglikelihood_rolling([ask("loglikelihood_rolling", TEXT)], True)[0]
        self.assertTrue(np.isfinite(whole))
        self.refuses(ValueError, "positions for 64", lm.loglikelihood,
                     [ask("loglikelihood", "x", TEXT)], True)

    def test_writes(self):
        asked = [ask("generate_until", LONG, {"until": ["e"], "max_gen_toks": 30}),
                 ask("generate_until", LONG + "b", {"until": [], "max_gen_toks": 5})]
        found = self.lm.generate_until(asked, True)
        for text, stop, tokens, expected in zip((LONG, LONG + "b"), (["e"], []), (30, 5), found):
            self.assertEqual(expected, self.m.generate(text, tokens=tokens, stop=stop,
                                                       temperature=0))
        self.assertNotIn("e", found[0])
        self.refuses(ValueError, "num_beams", self.lm.generate_until,
                     [ask("generate_until", "x", {"num_beams": 4})], True)

    def test_refused(self):
        self.refuses(ValueError, "batch_size", E.DraLM, model=self.m, batch_size=8)
        self.refuses(ValueError, "path=", E.DraLM)
        self.refuses(OSError, "no such folder", E.DraLM, path="/nowhere/model")


@unittest.skipIf(lm_eval is None, "no lm-eval")
class Tasks(Case):
    def test_command_line(self):
        room = self.folder()
        m = dra.load("dra-delta-tiny", seed=2, set=SMALL)
        m.save(room + "/model")
        for name, keys in (("choices", {}), ("rolling", ROLLING), ("written", WRITTEN)):
            E.write_task(room, "our_" + name, QUESTIONS, **keys)
        env = dict(os.environ, HF_HOME=room + "/hf", PYTHONPATH=os.pathsep.join(sys.path))
        out = subprocess.run(
            [sys.executable, "-m", "dra.eval", "--model_args", "path=%s/model" % room, "--tasks",
             "our_choices,our_rolling,our_written", "--include_path", room, "--output_path",
             room + "/out", "--log_samples"], env=env, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, universal_newlines=True, timeout=300)
        self.assertEqual(out.returncode, 0, out.stdout[-2000:])
        files = [os.path.join(d, f) for d, _, names in os.walk(room + "/out") for f in names]
        self.check_choices(m, [f for f in files if "samples_our_choices" in f][0])
        with open([f for f in files if "results_" in f][0]) as f:
            results = json.load(f)["results"]
        losses = sum(m.score(q["question"]).logprob for q in QUESTIONS)
        words = sum(len(q["question"].split()) for q in QUESTIONS)
        self.assertAlmostEqual(results["our_rolling"]["word_perplexity,none"] /
                               np.exp(-losses / words), 1, 4)

    def check_choices(self, m, path):
        with open(path) as f:
            samples = [json.loads(line) for line in f]
        self.assertEqual(len(samples), len(QUESTIONS))
        for q, sample in zip(QUESTIONS, sorted(samples, key=lambda s: s["doc_id"])):
            state = m.read(q["question"])
            for choice, found in zip(q["choices"], sample["filtered_resps"]):
                self.assertAlmostEqual(float(found[0]), m.score(choice, state=state).logprob, 4)


if __name__ == "__main__":
    unittest.main()
