"""The list of bad input of docs/python.md, a line each: the class of the exception, and the text of
the library. Run under -X dev, and with the library of the sanitizer build."""
import unittest

import numpy as np

import dra
from common import SMALL, Case, python, small
from dra import functions
from test_functions import inputs

S = "layers.0.mixer.S"


class BadInput(Case):
    def setUp(self):
        self.m = small("dra-delta-tiny")
        self.s = self.m.read("Once")

    def test_wrong_dtype(self):
        ids = np.arange(4)
        for call in (lambda: self.m(ids), lambda: self.m.score(ids), lambda: self.m.grad(ids),
                     lambda: self.m.generate(ids), lambda: self.m.tune_state(ids)):
            self.refuses(dra.DTypeError, "int32|int64", call)
        self.refuses(dra.DTypeError, "float16|float", self.s.__setitem__, S,
                     self.s[S].astype(np.float16))
        self.refuses(dra.DTypeError, "float16", functions.delta,
                     **dict(inputs(), q=inputs()["q"].astype(np.float16)))
        self.refuses(TypeError, "expected", self.m.parameters.__setitem__, "norm_g", "ones")

    def test_wrong_shape(self):
        self.refuses(dra.ShapeError, "(T) or (B, T)|(1, 1, 3)", self.m,
                     np.zeros((1, 1, 3), np.int32))
        self.refuses(dra.ShapeError, "2 rows|has 1", self.m.read, np.zeros((2, 3), np.int32),
                     self.s)
        self.refuses(dra.ShapeError, S, self.s.__setitem__, S, self.s[S][:1].copy())
        self.refuses(dra.ShapeError, "norm_g", self.m.parameters.__setitem__, "norm_g",
                     np.ones(3, functions.REAL))
        error = self.refuses(dra.ShapeError, "delta", functions.delta,
                             **dict(inputs(), k=inputs()["k"][:, :3]))
        self.assertIsInstance(error, ValueError)

    def test_wrong_device(self):
        self.refuses(dra.DeviceError, "tpu", dra.load, "dra-gru-tiny",
                     device="tpu")
        self.refuses(dra.InvalidValue, "cuda:-1", dra.load, "dra-gru-tiny", device="cuda:-1")

        class Elsewhere:  # an array on another machine's device
            def __dlpack__(self, **asked):
                raise BufferError("not here")

            def __dlpack_device__(self):
                return 7, 0

        error = self.refuses(dra.DeviceError, "CPU", self.m, Elsewhere())
        self.assertIsInstance(error, RuntimeError)

    def test_no_gpu(self):
        out = python("import dra\n"
                     "try:\n    dra.load('dra-gru-tiny', device='cuda')\n"
                     "except dra.DeviceError as e:\n    print(type(e).__name__, e)\n",
                     DRA_PLUGIN_PATH="/nowhere", CUDA_VISIBLE_DEVICES="")
        self.assertRegex(out.stdout, "^DeviceError .*cuda")
        self.assertEqual(out.returncode, 0)

    def test_a_closed_model(self):
        m = dra.load("dra-delta-tiny", set=SMALL)
        s = m.read("Once")
        stream = m.stream("Once", tokens=4)
        m.close()
        for call in (lambda: m("x"), lambda: m.read("x"), lambda: m.score("x"),
                     lambda: m.grad("xy"), lambda: m.generate("x"), lambda: m.state(),
                     lambda: s.fork(), lambda: s[S], lambda: m.parameters["norm_g"],
                     lambda: m.save("/nowhere"), lambda: m.tune_state("/nowhere"),
                     lambda: next(stream)):
            error = self.refuses(dra.ClosedError, "closed", call)
            self.assertIsInstance(error, ValueError)

    def test_a_state_of_another_model(self):
        other = small("dra-delta-tiny", seed=9).read("Once")
        gru = small("dra-gru-tiny").read("Once")
        for s in (other, gru):
            for call in (lambda: self.m("x", state=s), lambda: self.m.read("x", s),
                         lambda: self.m.score("x", state=s),
                         lambda: self.m.generate("x", state=s)):
                self.refuses(dra.InvalidValue, "another model", call)
            # The library's own words: by what they were made with.
            self.refuses((dra.InvalidValue, dra.FormatError), "state", self.m.load_state, s)

    def test_nan(self):
        bad = self.s[S].copy()
        bad[0, 0, 0] = np.nan
        self.refuses(dra.InvalidValue, "NaN", self.s.__setitem__, S, bad)
        self.refuses(dra.InvalidValue, "NaN", self.m.parameters.__setitem__, "norm_g",
                     np.full_like(self.m.parameters["norm_g"], np.inf))
        self.refuses(dra.InvalidValue, "temperature", self.m.generate, "x", temperature=np.nan)
        s = self.m.read("x")
        s[S].fill(np.nan)  # in the memory itself, past all checks: the clamp of states takes it out
        self.assertTrue(np.isfinite(self.m.read("y", s).logits).all())

    # A missing library and one of another version: test_package.Library.


if __name__ == "__main__":
    unittest.main()
