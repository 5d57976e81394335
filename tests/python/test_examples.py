"""The scripts in examples/python run as they are; what they promise is in their output."""
import importlib.util
import os
import re
import subprocess
import sys
import unittest

from common import Case

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "examples", "python")


class Scripts(Case):
    def script(self, name, *needs):
        for module in needs:
            if importlib.util.find_spec(module) is None:
                self.skipTest("no " + module)
        out = subprocess.run([sys.executable, os.path.join(FOLDER, name)], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, universal_newlines=True, timeout=900,
                             cwd=self.folder(),
                             env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        self.assertEqual(out.returncode, 0, out.stdout)
        return out.stdout

    def numbers(self, pattern, text):
        found = re.search(pattern, text)
        self.assertTrue(found, text)
        return [float(x) for x in found.groups()]

    def test_train_a_memory(self):
        text = self.script("train_a_memory.py")
        first, last = self.numbers(r"first step (\S+), of the last (\S+)", text)
        self.assertLess(last, first / 2)
        told, erased = self.numbers(r"what follows: (\S+); with that memory erased: (\S+)", text)
        self.assertLess(told, erased)
        self.assertIn("forgets half in", text)
        self.assertIn("layers.0.mixer.S", text)

    def test_a_hundred_questions(self):
        text = self.script("a_hundred_questions.py")
        self.assertIn("100 answers", text)
        self.assertIn("reading of its own: True", text)

    def test_gpt2_to_memory(self):
        text = self.script("gpt2_to_memory.py")
        shares = [float(x) for x in re.findall(r"share of attention (\S+),", text)]
        self.assertEqual(shares, sorted(shares, reverse=True))
        self.assertEqual(shares[-1], 0)
        before, = self.numbers(r"GPT-2: perplexity (\S+),", text)
        after, = self.numbers(r"memory: perplexity (\S+)", text)
        self.assertLess(after, 2 * before)

    def test_delta_layer(self):
        text = self.script("delta_layer.py", "torch")
        self.assertGreater(self.numbers(r"recalled (\d+) %", text)[0], 30)

    def test_evaluate(self):
        text = self.script("evaluate.py", "lm_eval")
        self.assertIn("accuracy", text)

    def test_all_are_here(self):
        with open(os.path.abspath(__file__)) as f:
            here = f.read()
        for name in os.listdir(FOLDER):
            if name.endswith(".py"):
                self.assertIn('"%s"' % name, here)


if __name__ == "__main__":
    unittest.main()
