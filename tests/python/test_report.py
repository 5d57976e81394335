"""Reports of models, states and runs; progress bars."""
import io
import json
import sys
import types
import unittest
from unittest import mock

import numpy as np

import dra
from common import TEXT, Case, command, run_command, small
from dra import _progress


class Reports(Case):
    @unittest.skipIf(command() is None, "no command line")
    def test_models_as_info_has_them(self):
        folder = self.folder() + "/m"
        for preset in ("dra-delta-tiny", "rwkv4-tiny", "dra-ema-tiny", "hybrid-tiny", "gpt2-tiny"):
            with self.subTest(preset=preset):
                m = dra.load(preset, seed=4, set={"depth": 2})
                m.save(folder + preset)
                info = json.loads(run_command("info", "--model", folder + preset, "--json"))
                self.assertEqual(len(m.decays), len(info["gammas"]))
                for d, row in zip(m.decays, info["gammas"]):
                    self.assertEqual((d.layer, d.memory, d.param, d.by_data),
                                     (row["layer"], row["memory"], row["param"], row["by_data"]))
                    self.near(d.gamma, row["gamma"], 1e-8)
                parts = {r[0]: r[1] for r in m.report().tables[0].rows}
                self.assertEqual(sum(parts.values()), info["parameters"])
                self.assertEqual(parts["mixers"], info["parts"]["mixers"])
                sizes = dict(m.report().tables[1].rows)
                self.assertEqual(sizes.get("a sequence", 0), info["state"]["bytes"])
                self.assertEqual(sizes.get("each token", 0), info["state"]["bytes_per_token"])

    def test_text_and_html(self):
        m = small("dra-delta-tiny")
        for thing, words in ((m, ("mixers", "half-life", "delta", "config")),
                             (m.read("Once"), ("layers.0.mixer.S", "norm", "4 tokens read"))):
            page = thing._repr_html_()
            for word in words:
                self.assertIn(word, page)
            self.assertEqual(page.count("<table>"), page.count("</table>"))
            self.assertNotIn("&lt;dra", page)
            for word in words[:2]:
                self.assertIn(word, str(thing.report()))
        closed = dra.load("dra-gru-tiny", set={"dim": 48, "depth": 1})
        closed.close()
        self.assertIn("closed", closed._repr_html_())

    def test_runs(self):
        room = self.folder()
        ids = np.tile(np.arange(64, dtype=np.int32), 50)
        run = dra.Trainer("dra-gru-tiny", data=ids, eval_data=ids, out=room + "/r", steps=12,
                          set={"dim": 48, "depth": 1}, batch=2, context=32, eval_every=6,
                          log_every=1)
        self.assertIn("0 steps", run._repr_html_())
        losses = [e.loss for e in run if e.kind == "step"]
        rows = dict(run.report().tables[0].rows)
        self.assertEqual(rows["step"], 12)
        self.assertAlmostEqual(rows["loss"], losses[-1], 6)
        self.assertIn("best eval_loss", rows)
        page = run._repr_html_()
        self.assertEqual(page.count("<polyline"), 2)
        self.assertEqual(page.split('points="')[1].split('"')[0].count(","), 12)
        self.assertEqual(str(dra.report(room + "/r")), str(run.report()))

    def test_no_run(self):
        room = self.folder()
        self.refuses(OSError, "log.jsonl|log of a run", dra.report, room)
        with open(room + "/log.jsonl", "w") as f:
            f.write('{"step": 1, "loss": 2.5}\nnonsense\n')
        self.refuses(OSError, "lines of JSON|nonsense", dra.report, room)
        with open(room + "/log.jsonl", "w") as f:
            f.write('{"step": 1, "loss": 2.5}\n{"step": 2, "lo')
        self.assertIn("2.5", str(dra.report(room)))

    def test_odd_logs(self):
        room = self.folder()
        for text, words in ((b'{"step": 1}\n[1, 2]\n', "lines of JSON|[1, 2]"),
                            (b'{"step": 1}\n3\n', "lines of JSON|3"),
                            (b'{"step": 1}\n\xff\xfe\n', "lines of JSON")):
            with open(room + "/log.jsonl", "wb") as f:
                f.write(text)
            self.refuses(dra.FileError, words, dra.report, room)
        with open(room + "/log.jsonl", "wb") as f:
            f.write(b'{"note": "\xff", "loss": 2.5}\n')
        self.assertIn("0 steps", str(dra.report(room)))


class Bar:
    """In the place of tqdm's."""
    all = []

    def __init__(self, total, desc, unit, leave):
        self.total, self.n, self.text, self.closed = total, 0, "", False
        Bar.all.append(self)

    def update(self, n=1):
        self.n += n

    def set_postfix_str(self, text):
        self.text = text

    def close(self):
        self.closed = True


class Progress(Case):
    def setUp(self):
        Bar.all = []
        fake = types.ModuleType("tqdm.auto")
        fake.tqdm = Bar
        patch = mock.patch.dict(sys.modules, {"tqdm": types.ModuleType("tqdm"), "tqdm.auto": fake})
        patch.start()
        self.addCleanup(patch.stop)

    def test_bars(self):
        m = small()
        self.same_states(m.read(TEXT * 4, progress=True), m.read(TEXT * 4))
        m.score(["a b", "c d"], progress=True)
        m.embed(["a b", "c d", "e"], progress=True)
        self.assertEqual([(b.n, b.total) for b in Bar.all],
                         [(len(TEXT) * 4, len(TEXT) * 4), (2, 2), (3, 3)])
        self.assertTrue(all(b.closed for b in Bar.all))

    def test_closed_by_errors(self):
        m = small()
        with mock.patch.object(type(m), "_run", side_effect=KeyboardInterrupt):
            for call in (m.read, lambda x, progress: m.score([x], progress=progress),
                         lambda x, progress: m.embed([x], progress=progress)):
                with self.assertRaises(KeyboardInterrupt):
                    call(TEXT, progress=True)
        self.assertEqual([b.closed for b in Bar.all], [True] * 3)

    def test_training_that_fails(self):
        def fail(event):
            if event.step == 2:
                raise RuntimeError("mine")
        run = dra.Trainer("dra-gru-tiny", data=np.zeros(500, np.int32), out=self.folder() + "/r",
                          steps=3, set={"dim": 48, "depth": 1}, batch=2, context=32)
        run.callbacks.append(fail)
        self.refuses(RuntimeError, "mine", run.run, progress=True)
        run.close()
        self.assertEqual([b.closed for b in Bar.all], [True])

    def test_training(self):
        ids = np.tile(np.arange(64, dtype=np.int32), 50)
        room = self.folder()
        settings = dict(data=ids, batch=2, context=32)
        dra.Trainer("dra-gru-tiny", out=room + "/r", steps=3, set={"dim": 48, "depth": 1},
                    **settings).run(progress=True)
        dra.Trainer.resume(room + "/r", steps=5, **settings).run(progress=True)
        self.assertEqual([(b.n, b.total) for b in Bar.all], [(3, 3), (5, 5)])
        self.assertIn("loss", Bar.all[0].text)

    def test_only_where_a_person_looks(self):
        with mock.patch.object(sys, "stderr", io.StringIO()):
            _progress.bar(3, "x").update()
            self.assertEqual(Bar.all, [])
            with mock.patch.dict(sys.modules, {"ipykernel": types.ModuleType("ipykernel")}):
                _progress.bar(3, "x").update()
            self.assertEqual(len(Bar.all), 1)
            with mock.patch.dict(sys.modules, {"tqdm.auto": None}):
                _progress.bar(3, "x", True).update()  # not installed
            self.assertEqual(len(Bar.all), 1)


if __name__ == "__main__":
    unittest.main()
