"""Saving in other formats and dtypes: the files of `dra convert`, which load again."""
import json
import os
import unittest

import dra
from common import SMALL, Case, command, run_command, small
from common import TEXT as LONG

TEXT = LONG[:200]


class Formats(Case):
    def model_type(self, folder):
        with open(folder + "/config.json") as f:
            return json.load(f)["model_type"]

    def test_hugging_face(self):
        for preset, kind in (("gpt2-tiny", "gpt2"), ("rwkv4-tiny", "rwkv")):
            with self.subTest(preset=preset):
                folder = self.folder() + "/m"
                m = small(preset)
                m.save(folder, format="hf")
                self.assertEqual(self.model_type(folder), kind)
                self.same(dra.load(folder)(TEXT).logits, m(TEXT).logits)
                dra.load(folder).save(folder + "-own", format="dra")
                self.assertEqual(self.model_type(folder + "-own"), "dra")
                self.same(dra.load(folder + "-own")(TEXT).logits, m(TEXT).logits)

    def test_names(self):
        room = self.folder()
        small("xt-modern-tiny").save(room + "/m", format="x-transformers")
        self.assertEqual(self.model_type(room + "/m"), "x-transformers")
        small("gpt2-tiny").save(room + "/m.gguf", format="gguf")
        self.same(dra.load(room + "/m.gguf")(TEXT).logits, small("gpt2-tiny")(TEXT).logits)
        self.refuses(OSError, "overwrite=True", small("gpt2-tiny").save, room + "/m.gguf",
                     format="gguf")
        small("gpt2-tiny").save(room + "/m.gguf", True, format="gguf")
        self.assertEqual(sorted(os.listdir(room)), ["m", "m.gguf"])

    @unittest.skipIf(command() is None, "no command line")
    def test_are_those_of_convert(self):
        room = self.folder()
        m = small("gpt2-tiny")
        m.save(room + "/own")
        run_command("convert", "--from", room + "/own", "--to", room + "/theirs", "--as", "hf",
                    "--dtype", "f16")
        m.save(room + "/mine", format="hf", dtype="f16")
        for name in sorted(os.listdir(room + "/theirs")):
            with open(room + "/theirs/" + name, "rb") as a, open(room + "/mine/" + name, "rb") as b:
                self.assertEqual(a.read(), b.read(), name)

    def test_dtypes(self):
        room = self.folder()
        m = dra.load("dra-delta-tiny", seed=1, set={"depth": 1})
        sizes = {}
        for dtype, tolerance in (("f32", 0), ("bf16", 3e-2), ("q8_0", 3e-2)):
            m.save(room + "/" + dtype, dtype=dtype)
            sizes[dtype] = os.path.getsize(room + "/%s/model.safetensors" % dtype)
            self.near(dra.load(room + "/" + dtype)(TEXT).logits, m(TEXT).logits, tolerance, dtype)
        self.assertLess(sizes["bf16"], 0.6 * sizes["f32"])
        self.assertLess(sizes["q8_0"], 0.7 * sizes["bf16"])

    def test_what_was_changed_is_saved(self):
        room = self.folder()
        m = dra.load("gpt2-tiny", seed=1, set={"depth": 1})
        m.parameters["embedding"] = m.parameters["embedding"] * 2
        m.save(room + "/m", format="hf")
        self.same(dra.load(room + "/m")("x").logits, m("x").logits)

    def test_replaced(self):
        room = self.folder()
        small("gpt2-tiny").save(room + "/m")
        with open(room + "/m/notes.txt", "w") as f:
            f.write("mine")
        self.refuses(OSError, "overwrite=True", small("gpt2-tiny").save, room + "/m", format="hf")
        small("gpt2-tiny").save(room + "/m", True, format="hf", dtype="bf16")
        self.assertEqual(self.model_type(room + "/m"), "gpt2")
        self.assertEqual(sorted(os.listdir(room + "/m")),
                         ["config.json", "model.safetensors", "notes.txt"])

    def test_refused_and_nothing_left(self):
        room = self.folder()
        m = dra.load("dra-delta-tiny", set=SMALL)
        self.refuses(ValueError, "no class|format='dra'", m.save, room + "/m", format="hf")
        self.refuses(LookupError, "no format 'onnx'|gguf", m.save, room + "/m", format="onnx")
        self.refuses(LookupError, "no dtype 'f8'|bf16", m.save, room + "/m", dtype="f8")
        self.refuses(dra.DraError, "", m.save, room + "/m", format="gpt2")
        self.assertEqual(os.listdir(room), [])
        m.save(room + "/m")
        before = sorted(os.listdir(room + "/m"))
        self.refuses(dra.DraError, "", m.save, room + "/m", True, format="gpt2")
        self.assertEqual(sorted(os.listdir(room + "/m")), before)

    def test_a_folder_where_a_file_goes(self):
        room = self.folder()
        os.mkdir(room + "/m.gguf")
        self.refuses(dra.FileError, "m.gguf: |directory", small("gpt2-tiny").save,
                     room + "/m.gguf", True, format="gguf")
        self.refuses(dra.DraError, "", small("vit-tiny").save, room + "/v.gguf", format="gguf")
        self.assertEqual(os.listdir(room), ["m.gguf"])


if __name__ == "__main__":
    unittest.main()
