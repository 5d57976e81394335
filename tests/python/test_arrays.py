"""dra.arrays: memory of a device there and back by DLPack, in the order of streams."""
import gc
import os
import unittest

import numpy as np

from common import Case, python
from dra import arrays, functions
from dra.errors import DeviceError
from test_functions import inputs

PLUGIN = os.path.join(os.path.dirname(os.environ.get("DRA_COMMAND", "")), "tests", "cuda_host")

#: What the emulated GPU runs, whose memory is the host's.
ON_A_GPU = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from dra import arrays, functions
from test_arrays import Foreign
from test_functions import inputs

x = inputs()
there = {}
for name, a in x.items():
    there[name] = arrays.empty(a.shape, a.dtype, (arrays.CUDA, 0))
    np.frombuffer((arrays.ctypes.c_char * a.nbytes).from_address(there[name].place[0]),
                  a.dtype)[:] = a.ravel()
    assert there[name].__cuda_array_interface__["data"][0] == there[name].place[0]
    assert (there[name].numpy() == a).all()
foreign = {n: Foreign(a) for n, a in there.items()}
taken = arrays.take(foreign["q"])
assert taken.place == there["q"].place  # no copy
y, S = functions.delta(**foreign)
assert y.__dlpack_device__() == (arrays.CUDA, 0), y
plain = functions.delta(**x)
for a, b in zip((y, S), plain):
    worst = np.abs(a.numpy() - b).max()
    assert worst < 1e-5, worst
dy = np.ones_like(plain[0])
up = arrays.empty(dy.shape, dy.dtype, (arrays.CUDA, 0))
np.frombuffer((arrays.ctypes.c_char * dy.nbytes).from_address(up.place[0]), dy.dtype)[:] = 1
grads = functions.delta.gradient(foreign, {"y": Foreign(up)})
expected = functions.delta.gradient(x, {"y": dy})
for name, g in grads.items():
    worst = np.abs(g.numpy() - expected[name]).max() / np.abs(expected[name]).max()
    assert worst < 1e-4, (name, worst)
assert set(Foreign.asked) == {1}, Foreign.asked  # the default stream, for which dra then waits
try:
    functions.delta(**dict(foreign, q=x["q"]))
except RuntimeError as e:
    print(type(e).__name__, e)
"""


class Foreign:
    """An array of another library, which has nothing but DLPack."""

    asked = []

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, stream=None, **more):
        Foreign.asked.append(stream)
        return self._array.__dlpack__(stream=stream, **more)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class Arrays(Case):
    def test_there_and_back(self):
        for dtype in (np.float32, np.int32, np.bool_, np.float64):
            x = np.arange(24).reshape(2, 3, 4).astype(dtype)
            a = arrays.take(Foreign(x))
            self.assertEqual((a.shape, a.dtype, a.place[0]), ((2, 3, 4), x.dtype, x.ctypes.data))
            back = np.from_dlpack(a)
            self.assertTrue(np.shares_memory(back, x))
            self.same(back, x)
            self.same(np.asarray(a), x)
            copy = a.numpy()
            self.same(copy, x)
            self.assertFalse(np.shares_memory(copy, x))
        empty = arrays.take(Foreign(np.zeros((0, 3), np.float32)))
        self.same(empty.numpy(), np.zeros((0, 3), np.float32))

    def test_memory_lives_as_long_as_it_is_shown(self):
        a = arrays.empty((5,), np.float32)
        memory = (arrays.ctypes.c_char * a.nbytes).from_address(a.place[0])
        np.frombuffer(memory, np.float32)[:] = 7
        shown = np.from_dlpack(a)
        del a, memory
        gc.collect()
        self.assertEqual(shown.tolist(), [7] * 5)
        before = len(arrays._given)
        del shown
        gc.collect()
        self.assertEqual(len(arrays._given), before - 1)
        capsule = arrays.empty((5,), np.float32).__dlpack__()
        del capsule  # which nobody took
        self.assertEqual(len(arrays._given), before - 1)

    def test_refused(self):
        x = np.zeros((4, 6), np.float32)
        self.refuses(ValueError, "dense", arrays.take, Foreign(x[:, ::2]))
        self.refuses(TypeError, "kind", arrays.take, Foreign(x.astype(complex)))

        class Elsewhere(Foreign):
            def __dlpack_device__(self):
                return 7, 0

        self.refuses(RuntimeError, "kind 7", arrays.take, Elsewhere(x))
        self.refuses(BufferError, "copy", arrays.take(Foreign(x)).__dlpack__, copy=True)
        self.refuses(AttributeError, "CPU", lambda: arrays.empty((2,), np.float32)
                     .__cuda_array_interface__)

        class OnGpu(Foreign):
            def __dlpack_device__(self):
                return arrays.CUDA, 0

        self.refuses(DeviceError, "cuda", functions.delta, **dict(inputs(), q=OnGpu(x)))

    def test_foreign_arrays_on_the_cpu(self):
        x = inputs()
        for a, b in zip(functions.delta(**{n: Foreign(v) for n, v in x.items()}),
                        functions.delta(**x)):
            self.same(a, b)

    @unittest.skipUnless(os.path.exists(PLUGIN + "/libdra-cuda.so"), "no emulated GPU")
    def test_on_a_gpu(self):
        out = python(ON_A_GPU, os.path.dirname(os.path.abspath(__file__)), DRA_PLUGIN_PATH=PLUGIN)
        self.assertEqual(out.stdout, "DeviceError delta: expected arrays of one device, found "
                                     "cpu, cuda:0\n")


if __name__ == "__main__":
    unittest.main()
