"""The package itself: its library and declarations, models and files, bad input, Ctrl-C, copies."""
import ctypes
import gc
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
import unittest
import zipfile
from unittest import mock

import numpy as np

import dra
from common import SMALL, TEXT, Case, command, python, run_command, small

HERE = os.path.dirname(os.path.abspath(dra.__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Library(Case):
    def test_missing(self):
        out = python("import dra", DRA_LIBRARY="/nowhere/libdra.so")
        self.assertIn("LibraryError: libdra:", out.stdout)
        self.assertIn("/nowhere/libdra.so", out.stdout)
        self.assertEqual(out.returncode, 1)

    def test_no_library_of_ours(self):
        out = python("import dra", DRA_LIBRARY=ctypes.CDLL("libm.so.6")._name)
        self.assertIn("LibraryError: libm.so.6: is not libdra", out.stdout)

    def test_of_another_version(self):
        code = ("import sys, types, importlib.util as u\n"
                "s = u.spec_from_file_location('dra._c', %r)\n"
                "m = u.module_from_spec(s); s.loader.exec_module(m)\n"
                "%s\nsys.modules['dra._c'] = m\nimport dra")
        for change, words in (("m.ABI_VERSION += 1000", "compiled for dra"),
                              ("m.ABI_STRUCTS[5] = m.dra_shape", "bytes in the program")):
            out = python(code % (os.path.join(HERE, "_c.py"), change),
                         DRA_LIBRARY=dra.LIBRARY_PATH)
            self.assertIn("LibraryError", out.stdout)
            self.assertIn(words, out.stdout)
            self.assertEqual(out.returncode, 1)

    def test_named_by_the_environment(self):
        path = os.path.realpath(os.path.join(HERE, dra._library.SONAME))
        if not os.path.exists(path):
            self.skipTest("no library beside the package")
        out = python("import dra; print(dra.LIBRARY_PATH)", DRA_LIBRARY=path)
        self.assertEqual(out.stdout.strip(), path)
        self.assertEqual(dra.__version__, dra.library_version())

    def test_every_status_has_a_class(self):
        from dra import _c
        self.assertEqual(len(dra.errors.OF_STATUS), _c.DRA_STATUS_COUNT)
        for kind in dra.errors.OF_STATUS[1:]:
            self.assertTrue(issubclass(kind, dra.DraError))
            self.assertGreater(len(kind.__mro__), 4)  # a built-in one, too

    def test_every_function_is_there(self):
        from dra import _c
        from dra._library import lib
        for name in _c.FUNCTIONS:
            getattr(lib, name)

    def test_sources_are_python_3_9(self):
        import ast
        for folder in (HERE, os.path.join(ROOT, "python"), os.path.dirname(__file__),
                       os.path.join(ROOT, "examples", "python")):
            for name in os.listdir(folder) if os.path.isdir(folder) else []:
                if name.endswith(".py"):
                    with open(os.path.join(folder, name)) as f:
                        ast.parse(f.read(), name, feature_version=(3, 9))

    def test_import_brings_little(self):
        """What takes long to import waits until it is used."""
        out = python("import numpy, sys; before = set(sys.modules); import dra\n"
                     "print(len(set(sys.modules) - before), *(n for n in ('torch', 'tqdm',"
                     "'transformers', 'lm_eval', 'importlib.metadata') if n in sys.modules"
                     " and n not in before))")
        self.assertLess(int(out.stdout), 60)

    def test_typed(self):
        self.assertTrue(os.path.exists(os.path.join(HERE, "py.typed")))
        for name in ("load", "Model", "State", "Trainer", "Tokenizer", "Stream"):
            self.assertIn(name, dra.__all__)
            self.assertTrue(getattr(dra, name).__doc__)


class Release(Case):
    def test_one_version(self):
        with open(os.path.join(ROOT, "include", "dra", "base.h")) as f:
            parts = re.findall(r"^#define DRA_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", f.read(), re.M)
        version = ".".join(parts)
        self.assertEqual(dra.__version__, version)
        if command():
            self.assertEqual(run_command("--version").strip(), "dra " + version)
        with open(os.path.join(ROOT, "CHANGELOG.md")) as f:
            newest = re.search(r"^## (\S+)", f.read(), re.M)
        self.assertEqual(newest.group(1), version)

    def test_plugins_in_packages(self):
        """The wheel of the plugin, here of the one that is compiled for the host."""
        built = os.path.join(os.path.dirname(command() or ""), "tests/cuda_host/libdra-cuda.so")
        if not os.path.exists(built):
            self.skipTest("no plugin for the host in the build")
        room = self.folder()
        subprocess.run([sys.executable, os.path.join(ROOT, "python", "plugin_wheel.py"), built,
                        dra.__version__, room], check=True, stdout=subprocess.PIPE)
        wheel, = [n for n in os.listdir(room) if n.endswith(".whl")]
        with zipfile.ZipFile(os.path.join(room, wheel)) as z:
            z.extractall(room)
            self.assertIn("dra==" + dra.__version__, z.read(
                "dra_cuda13-%s.dist-info/METADATA" % dra.__version__).decode())
        path = os.pathsep.join([room, *sys.path])
        code = ("import dra\n"
                "try: m = dra.load('dra-gru-tiny', device='cuda', set={'dim': 48})\n"
                "except dra.DeviceError as e: print(e)\n"
                "else: print(m('x').logits.shape)")
        self.assertIn("(1, 256)", python(code, PYTHONPATH=path).stdout)
        self.assertIn("no libdra-cuda.so", python(code).stdout)

    def plugin_package(self, body):
        """A folder with a package that has an entry point for plugins."""
        room = self.folder()
        os.mkdir(room + "/dra_odd-1.dist-info")
        for name, text in (("dra_odd.py", "def folder():\n    " + body),
                           ("dra_odd-1.dist-info/METADATA", "Name: dra_odd\nVersion: 1\n"),
                           ("dra_odd-1.dist-info/entry_points.txt",
                            "[dra.plugins]\nodd = dra_odd:folder\n")):
            with open(os.path.join(room, name), "w") as f:
                f.write(text)
        return room

    def test_plugins_that_fail(self):
        room = self.plugin_package("raise KeyError('no card')")
        code = ("import dra\n"
                "for _ in range(2):\n"
                "    try: dra.load('dra-gru-tiny', device='cuda')\n"
                "    except dra.DeviceError as e: print(e)")
        out = python(code, PYTHONPATH=os.pathsep.join([room, *sys.path]))
        self.assertEqual(out.stdout, "dra_odd: 'no card'\n" * 2)

    def test_plugins_are_looked_for_once(self):
        from dra import _plugins
        with mock.patch.object(_plugins, "_looked", False), \
                mock.patch.object(_plugins.metadata, "entry_points", return_value={}) as looked, \
                mock.patch.dict(os.environ):
            os.environ.pop("DRA_PLUGIN_PATH", None)
            _plugins.find()
            _plugins.find()
        self.assertEqual(looked.call_count, 1)

    def wheel_command(self, room, *args, device=""):
        """The command of the wheel, where the program is a script that says what it was given."""
        os.makedirs(room + "/dra/bin", exist_ok=True)
        open(room + "/dra/__init__.py", "w").close()
        shutil.copy(os.path.join(HERE, "_plugins.py"), room + "/dra/_plugins.py")
        shutil.copy(os.path.join(ROOT, "python", "command.py"), room + "/command.py")
        with open(room + "/dra/bin/dra", "w") as f:
            f.write('#!/bin/sh\necho "$DRA_PLUGIN_PATH" "$@"\n')
        os.chmod(room + "/dra/bin/dra", 0o755)
        env = dict(os.environ, PYTHONPATH=room, DRA_DEVICE=device)
        env.pop("DRA_PLUGIN_PATH", None)
        out = subprocess.run([sys.executable, room + "/command.py", *args], env=env, timeout=120,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             universal_newlines=True)
        return out.returncode, out.stdout.strip()

    def test_the_command_finds_plugins(self):
        room = self.plugin_package("return '/plugins'")
        self.assertEqual(self.wheel_command(room, "info"), (0, "info"))
        self.assertEqual(self.wheel_command(room, "devices"), (0, "/plugins devices"))
        self.assertEqual(self.wheel_command(room, "--device=cuda:1"),
                         (0, "/plugins --device=cuda:1"))
        self.assertEqual(self.wheel_command(room, "info", device="cuda"), (0, "/plugins info"))
        room = self.plugin_package("raise OSError('no card')")
        self.assertEqual(self.wheel_command(room, "devices"), (1, "dra: dra_odd: no card"))


class Loading(Case):
    def test_saved_and_loaded(self):
        folder = self.folder() + "/model"
        m = small("dra-delta-tiny")
        m.save(folder)
        n = dra.load(folder)
        self.same(n(TEXT).logits, m(TEXT).logits)
        self.refuses(OSError, "overwrite", m.save, folder)
        m.save(folder, overwrite=True)
        self.assertEqual(sorted(os.listdir(folder)), ["config.json", "model.safetensors"])

    def test_configs(self):
        config = dict(small("dra-delta-tiny").config)
        m = dra.load(config, seed=3)
        self.same(m("Once").logits, small("dra-delta-tiny")("Once").logits)
        self.assertFalse((dra.load(config, seed=4)("x").logits == m("x").logits).all())
        self.refuses(ValueError, "dept", dra.load, dict(config, dept=3))

    def test_foreign_formats(self):
        for preset in ("gpt2-tiny", "rwkv4-tiny", "xt-decoder-tiny"):
            folder = self.folder() + "/model"
            m = dra.load(preset, seed=2)
            m.save(folder)
            n = dra.load(folder)
            self.same(n(TEXT[:100]).logits, m(TEXT[:100]).logits, preset)
            self.assertEqual(n.parameter_count, m.parameter_count)

    def test_quantised(self):
        folder = self.folder() + "/q"
        m = small("dra-delta-tiny")
        q = dra.load("dra-delta-tiny", seed=3).quantise("q8_0", folder)
        self.same(dra.load(folder)("Once").logits, q("Once").logits)
        self.refuses(LookupError, "q8_1|q8_0", m.quantise, "q8_1")
        self.refuses(LookupError, "bool", m.quantise, "bool")
        for name in ("f64", "q3_k"):
            self.refuses(TypeError, "cannot be written as " + name, m.quantise, name)

    def test_bf16(self):
        a, b = (dra.load("dra-delta-tiny", seed=2, dtype=d)(TEXT).logits for d in ("f32", "bf16"))
        self.assertFalse((a == b).all())
        self.near(b, a, 0.05)

    def test_parameters(self):
        m = dra.load("dra-delta-tiny", seed=2, set=SMALL)
        before = m("x").logits
        m.parameters["embedding"] = m.parameters["embedding"] * np.float32(1.5)
        self.assertFalse((m("x").logits == before).all())
        self.assertFalse(m.parameters["embedding"].flags.writeable)
        self.assertEqual(sum(p.size for p in m.parameters.values()), m.parameter_count)
        self.refuses(KeyError, "nothing", lambda: m.parameters["nothing"])
        self.refuses(ValueError, "shape", m.parameters.__setitem__, "embedding",
                     np.zeros(3, np.float32))
        self.refuses(TypeError, "float32", m.parameters.__setitem__, "embedding", np.zeros(3))
        with self.assertRaises(TypeError):
            del m.parameters["embedding"]

    def test_shown_in_notebooks(self):
        self.assertIn("<table>", small()._repr_html_())
        shown = small("dra-delta-tiny").read("x")._repr_html_()
        self.assertIn("layers.0.mixer.S</td><td>(6, 8, 8)", shown)

    def test_refused(self):
        self.refuses(OSError, "nothing-like-it|preset", dra.load, "nothing-like-it")
        self.refuses(RuntimeError, "tpu", dra.load, "dra-delta-tiny", device="tpu")
        self.refuses(ValueError, "dtype", dra.load, "dra-delta-tiny", dtype="f64")
        folder = self.folder()
        with self.assertRaises(dra.DraError):
            dra.load(folder)
        with open(folder + "/config.json", "w") as f:
            f.write("{")
        self.refuses(ValueError, "config.json", dra.load, folder)
        self.refuses(ValueError, "img", dra.load("vit-tiny").read, [1])


class Ids(Case):
    def test_refused(self):
        m = small()
        self.refuses(TypeError, "int32|int64", m, np.arange(3))
        self.refuses(TypeError, "int32|float32", m, np.zeros(3, np.float32))
        self.refuses(TypeError, "whole", m, [1.5])
        self.refuses(TypeError, "rows", m, [[1], [2, 3]])
        self.refuses(TypeError, "array", m, {1: 2})
        self.refuses(IndexError, "256|255", m, [256])
        self.refuses(IndexError, "-1", m.read, [-1])
        self.refuses(IndexError, "bits", m, [2**40])
        self.refuses(ValueError, "(1, 1, 1)", m, [[[1]]])
        self.refuses(ValueError, "2 rows", m, [[1], [2]], state=m.state())
        self.refuses(ValueError, "keep", m, [1], keep=-1)
        self.refuses(ValueError, "learn from", m.grad, [1])
        self.refuses(ValueError, "targets", m.grad, [1, 2], targets=[1, 2, 3])
        self.refuses(IndexError, "targets", m.grad, [1, 2], targets=[1, 999])
        self.refuses(ValueError, "pool", m.embed, "x", pool="max")

    def test_none_at_all(self):
        m = small()
        self.assertEqual(m([]).logits.shape, (0, 256))
        self.assertEqual(m.read("").tokens, 0)
        self.assertEqual(m.score("").tokens, 0)

    def test_taken_as_they_are(self):
        m = small()
        ids = m.tokenizer.encode(TEXT)
        self.same(m(ids[::2]).logits, m(list(ids[::2])).logits)

    def test_arrays_are_not_copied_again(self):
        """What a call allocates are its results."""
        m = small("dra-delta-tiny")
        ids = np.resize(m.tokenizer.encode(TEXT), 2000)
        m(ids)
        gc.collect()
        tracemalloc.start()
        out = m(ids)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        results = out.logits.nbytes + out.hidden.nbytes
        self.assertLess(most, results + 40000)

    def test_round_trips_copy_nothing(self):
        """Ids go in where they are; parameters and states come out where they are."""
        m = dra.load("dra-delta-tiny")
        ids, state = np.zeros(10**6, np.int32), m.read("Once upon")
        gc.collect()
        tracemalloc.start()
        self.assertIs(dra._library.ids_of(ids), ids)
        total = sum(x.nbytes for x in m.parameters.values())
        shown = m.parameters["embedding"]
        try:
            shown = np.from_dlpack(shown)
        except BufferError:  # NumPy before 2.1 hands on no arrays that are only read
            pass
        kept = [m.parameters["embedding"], shown,
                state["layers.0.mixer.S"], state["layers.0.mixer.S"]]
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        self.assertGreater(total, 10 * most)
        for a, b in (kept[:2], kept[2:]):
            self.assertTrue(np.shares_memory(a, b))


class Interrupts(Case):
    CODE = """
import os, signal, threading, time, numpy as np, dra
m = dra.load("dra-delta-tiny")
m("warm", state=m.state()); m.generate("warm", tokens=2)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
began = time.time()
try:
    %s
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", time.time() - began < 5)
print(len(m.generate("Once", tokens=5, ignore_end=True)) > 0)
"""

    def test_calls_end(self):
        for call in ("m.read(np.zeros(3000000, np.int32))",
                     "m.generate('Once', tokens=10**7, ignore_end=True)",
                     "list(m.stream('Once', tokens=10**7, ignore_end=True))",
                     "m.generate(['a', 'b'], tokens=10**7, ignore_end=True)"):
            out = python(self.CODE % call)
            self.assertEqual(out.stdout.split(), ["interrupted", "True", "True"],
                             call + "\n" + out.stdout)


class Limits(Case):
    def test_handles_go(self):
        m = small("dra-delta-tiny")
        m.generate("x", tokens=2)
        for _ in range(300):
            m.read("x").fork()
            m.generate("x", tokens=1)
        self.assertLess(sum(len(g) for g in m._generators.values()), 4)

    def test_models_go(self):
        out = python("""
import dra, gc, resource
def rss(): return int(open("/proc/self/statm").read().split()[1]) * 4096
for i in range(60):
    m = dra.load("dra-delta-tiny")
    s = m.read("Once upon"); m.generate("x", tokens=3); m.grad("abc")
    if i == 10: before = rss()
print(rss() - before < 100 << 20)
""")
        self.assertEqual(out.stdout.strip(), "True", out.stdout)


if __name__ == "__main__":
    unittest.main()
