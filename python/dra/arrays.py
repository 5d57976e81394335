"""Arrays in the memory of a device, which other libraries take and give by DLPack.

    a = dra.arrays.take(tensor)          # a tensor on a GPU, where it is
    b = torch.from_dlpack(a)             # and back

On a GPU an array comes with its place in the order of streams: what is taken is read after what its
library has started, and what is given is read after what dra has.
"""
import ctypes
import itertools
import weakref
from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np

from ._library import Handle, call, lib, make
from .errors import DeviceError, DTypeError, InvalidValue
from .opening import open_device

CPU, CUDA = 1, 2  # kinds of devices, as DLPack numbers them
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_kind", ctypes.c_int32),
                ("device_number", ctypes.c_int32), ("axes", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


_Delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("delete", _Delete)]


# ---- capsules ------------------------------------------------------------------------------------

_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, _Delete]
_is_named = _api.PyCapsule_IsValid
_is_named.restype, _is_named.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
_pointer = _api.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
_rename = _api.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]

_FRESH, _USED = b"dltensor", b"used_dltensor"
_given: Dict[int, Any] = {}  # what others hold, by the address of its struct


def _forget(at: Any) -> None:
    _given.pop(at, None)


_forget_given = _Delete(_forget)


@_Delete
def _unclaimed(capsule: Any) -> None:
    """A capsule goes: if nobody took what is in it, that goes, too."""
    if _is_named(capsule, _FRESH):
        _forget(_pointer(capsule, _FRESH))


class Array:
    """Numbers in the memory of a device, dense. `numpy.asarray()` of one on the CPU shows it;
    `numpy()` copies one from anywhere."""

    def __init__(self, device: Handle, kind: Tuple[int, int], memory: Handle,
                 shape: Tuple[int, ...], dtype: Any) -> None:
        self._device, self._kind, self._memory = device, kind, memory
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def place(self) -> Tuple[int, int]:
        """Its address in the memory of the device, and its bytes."""
        return lib.dra_span_data(lib.dra_array_whole(self._memory.at)) or 0, self.nbytes

    def numpy(self) -> np.ndarray:
        """A copy in memory of the CPU."""
        out = np.empty(self.shape, self.dtype)
        if self.nbytes:
            call(lib.dra_array_download, out.ctypes.data, lib.dra_array_whole(self._memory.at))
        return out

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._kind

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Any = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        if (dl_device is not None and tuple(dl_device) != self._kind) or copy:
            raise BufferError("dra.Array: it is given where it is, without a copy")
        if self._kind[0] == CUDA and stream != -1:
            call(lib.dra_device_order, self._device.at, _stream(stream), True)
        n = len(self.shape)
        shape = (ctypes.c_int64 * max(n, 1))(*self.shape)
        managed = _Managed(_Tensor(self.place[0], *self._kind, n, _CODES[self.dtype.kind],
                                   8 * self.dtype.itemsize, 1, shape, None, 0), None,
                           _forget_given)
        _given[ctypes.addressof(managed)] = managed, shape, self
        return _new(ctypes.addressof(managed), _FRESH, _unclaimed)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self._kind[0] != CUDA:
            raise AttributeError("__cuda_array_interface__: it is on the CPU")
        call(lib.dra_device_order, self._device.at, None, True)
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.place[0], False),
                "version": 3, "stream": 1}

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        out = np.from_dlpack(self) if self._kind[0] == CPU and not copy else self.numpy()
        return out if dtype is None else out.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return "<dra.Array %s %s on %s>" % (self.shape, self.dtype, name_of(self._kind))


def _stream(stream: Optional[int]) -> Optional[int]:
    """A stream as DLPack numbers it; None and 1 are the default one."""
    return None if stream in (None, 0, 1) else stream


def name_of(kind: Tuple[int, int]) -> str:
    return "cpu" if kind[0] == CPU else "cuda:%d" % kind[1]


def empty(shape: Tuple[int, ...], dtype: Any, kind: Tuple[int, int] = (CPU, 0)) -> Array:
    """Memory of a device that holds anything."""
    device = open_device(name_of(kind), 0)
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = Handle(make(lib.dra_array_create, device.at, size), lib.dra_array_destroy, device)
    return Array(device, kind, memory, shape, dtype)


# ---- taking --------------------------------------------------------------------------------------

class _Claim:
    """What another library gave; it gets it back when nobody needs it any more."""

    def __init__(self, capsule: Any) -> None:
        at = id(capsule)
        if not _is_named(at, _FRESH):
            raise InvalidValue("arrays: expected a DLPack capsule that nobody has taken")
        self.managed = _Managed.from_address(_pointer(at, _FRESH))
        _rename(at, _USED)
        address, delete = ctypes.addressof(self.managed), self.managed.delete
        weakref.finalize(self, _give_back, delete, address)

    def layout(self, what: str) -> Tuple[Tuple[int, ...], np.dtype, int]:
        t = self.managed.tensor
        shape = tuple(t.shape[:t.axes])
        kinds = {c: k for k, c in _CODES.items()}
        if t.lanes != 1 or t.code not in kinds or t.bits not in (8, 16, 32, 64):
            raise DTypeError("%s: its numbers are of a kind that NumPy does not have" % what)
        dtype = np.dtype("%s%d" % (kinds[t.code], t.bits // 8) if t.code != 6 else np.bool_)
        dense = [1, *itertools.accumulate(shape[:0:-1], lambda a, b: a * b)][::-1]
        strides = list(t.strides[:t.axes]) if t.strides else dense[:t.axes]
        if 0 not in shape and any(n > 1 and s != d for n, s, d in zip(shape, strides, dense)):
            raise InvalidValue("%s: expected a dense array; .contiguous() makes a copy that is" %
                               what)
        return shape, dtype, (t.data or 0) + t.offset


def _give_back(delete: Callable[[int], None], address: int) -> None:
    if delete:
        delete(address)


def take(x: Any, what: str = "array") -> Array:
    """An array of another library, by DLPack, where it is."""
    if isinstance(x, Array):
        return x
    kind = tuple(int(n) for n in x.__dlpack_device__())
    if kind[0] not in (CPU, CUDA):
        raise DeviceError("%s: it is on a device of kind %d of DLPack, expected the CPU or a GPU "
                          "of NVIDIA" % (what, kind[0]))
    device = open_device(name_of(kind), 0)
    claim = _Claim(x.__dlpack__(stream=1) if kind[0] == CUDA else x.__dlpack__())
    shape, dtype, address = claim.layout(what)
    if kind[0] == CUDA:
        call(lib.dra_device_order, device.at, None, False)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = Handle(make(lib.dra_array_wrap, device.at, address, size), lib.dra_array_destroy,
                    device, claim)
    return Array(device, kind, memory, shape, dtype)
