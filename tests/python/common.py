"""What the tests share: small models, texts, and how results are compared."""
import functools
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import dra

SMALL = {"dim": 48, "depth": 2}
TEXT = ("Once upon a time there was a river that remembered everything it had ever carried, and "
        "people came to ask it about those who had gone. ") * 3


@functools.lru_cache(maxsize=None)
def small(preset="dra-gru-tiny", seed=3):
    """A small model of a preset; tests share it and leave it as it is."""
    return dra.load(preset, seed=seed, set=SMALL if preset.startswith("dra-") else None)


def language_presets():
    """Those that read and write ids from left to right, in their tiny size."""
    out = []
    for name in dra.presets():
        if not name.endswith("-tiny"):
            continue
        m = dra.load(name)
        if set(m._reads) == {"ids"} and not m._whole:
            out.append(name)
    return out


class Case(unittest.TestCase):
    def same(self, a, b, what=""):
        """Bit for bit."""
        a, b = np.asarray(a), np.asarray(b)
        self.assertEqual(a.shape, b.shape, what)
        self.assertEqual(a.dtype, b.dtype, what)
        self.assertTrue(a.tobytes() == b.tobytes(),
                        "%s: differ by %g" % (what, np.abs(a.astype(float) - b).max(initial=0)))

    def near(self, a, b, tolerance, what=""):
        """Up to a part of the largest number; NaN is never near."""
        a, b = np.asarray(a, float), np.asarray(b, float)
        self.assertEqual(a.shape, b.shape, what)
        worst, most = np.abs(a - b).max(initial=0), np.abs(b).max(initial=0)
        self.assertTrue(worst <= tolerance * most, "%s: %g of %g" % (what, worst, most))

    def same_states(self, a, b, what=""):
        self.assertEqual(a.tokens, b.tokens, what)
        for name in a:
            self.same(a[name], b[name], "%s: %s" % (what, name))
        self.same(a.logits, b.logits, what)

    def folder(self):
        room = tempfile.TemporaryDirectory()
        self.addCleanup(room.cleanup)
        return room.name

    def refuses(self, kind, words, function, *args, **named):
        """An exception of this class, of the package's own, and with these words in its text."""
        with self.assertRaises(kind) as caught:
            function(*args, **named)
        for word in words.split("|"):
            self.assertIn(word, str(caught.exception))
        return caught.exception


def python(code, *args, **environment):
    """Runs Python code in a process of its own."""
    env = dict(os.environ, **environment)
    return subprocess.run([sys.executable, "-X", "faulthandler", "-c", code, *args], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
                          universal_newlines=True)


def command():
    """The command line of the same build; None: there is none."""
    path = os.environ.get("DRA_COMMAND")
    return path if path and os.path.exists(path) else None


TYPES = {"F32": np.float32, "I32": np.int32, "BOOL": np.bool_}


def write_tensors(path, arrays):
    """A safetensors file of arrays by name."""
    header, at = {}, 0
    kinds = {np.dtype(t): name for name, t in TYPES.items()}
    for name, x in arrays.items():
        header[name] = {"dtype": kinds[x.dtype], "shape": x.shape,
                        "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for x in arrays.values():
            f.write(np.ascontiguousarray(x).tobytes())


def read_tensors(path):
    with open(path, "rb") as f:
        data = f.read()
    size, = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    header.pop("__metadata__", None)
    return {name: np.frombuffer(body[slice(*h["data_offsets"])], TYPES[h["dtype"]]).reshape(
        h["shape"]) for name, h in header.items()}


def run_command(*args):
    """The command line; its text where it succeeds."""
    out = subprocess.run([command(), *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         universal_newlines=True, timeout=120)
    if out.returncode:
        raise AssertionError("dra %s: %s" % (" ".join(args), out.stdout))
    return out.stdout
