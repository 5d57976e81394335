"""The shared library: found, checked, called."""
import ctypes
import json
import os
import threading
import warnings
from typing import Any, Callable, List, Mapping, Optional, Tuple, Union

import numpy as np

from . import _c, errors

Path = Union[str, "os.PathLike[str]"]

HERE = os.path.dirname(os.path.abspath(__file__))
MAJOR, MINOR = _c.ABI_VERSION // 1000000, _c.ABI_VERSION // 1000 % 1000
SONAME = "libdra.so.%s" % ("0.%d" % MINOR if MAJOR == 0 else MAJOR)

#: The type that all arithmetic of this library is done in.
REAL = np.dtype(_c.dra_real)


def _open() -> Tuple[ctypes.CDLL, str]:
    named = os.environ.get("DRA_LIBRARY")
    path = named or os.path.join(HERE, SONAME)
    if not named and not os.path.exists(path):
        path = SONAME  # where the system keeps libraries
    try:
        return ctypes.CDLL(path), path
    except OSError as e:
        raise errors.LibraryError(
            "libdra: %s; expected it beside the package, or its path in DRA_LIBRARY" % e) from None


def _check(library: ctypes.CDLL, path: str) -> None:
    """The library's own check: the version and the size of every public struct."""
    try:
        compare, version = library.dra_abi_compare, library.dra_version
    except AttributeError:
        raise errors.LibraryError("%s: is not libdra" % path) from None
    version.restype = ctypes.c_char_p
    sizes = [ctypes.sizeof(t) for t in _c.ABI_STRUCTS]
    err = _c.dra_error()
    compare.restype, compare.argtypes = _c.FUNCTIONS["dra_abi_compare"]()
    list_of = (ctypes.c_size_t * len(sizes))(*sizes)
    if compare(_c.ABI_VERSION, len(sizes), ctypes.addressof(list_of), ctypes.byref(err)):
        raise errors.LibraryError("%s, version %s: %s" % (
            path, version().decode(), text_of(err) or "made for another struct dra_error"))


def text_of(err: "_c.dra_error") -> str:
    return err.text.decode("utf-8", "replace")


#: Bytes that no 0 ends: their address.
_BYTES = {"dra_tokenizer_piece"}


class _Functions:
    """The functions of the library, typed by _c when first asked for."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)
        function.restype, function.argtypes = _c.FUNCTIONS[name]()
        if name in _BYTES:
            function.restype = ctypes.c_void_p
        setattr(self, name, function)
        return function


_library, LIBRARY_PATH = _open()
_check(_library, LIBRARY_PATH)
lib = _Functions(_library)


def library_version() -> str:
    """The version of the library that runs."""
    return lib.dra_version().decode()


def fail(err: "_c.dra_error", status: int) -> Exception:
    """The exception of a status, to be raised."""
    kind = errors.OF_STATUS[status] if 0 < status < len(errors.OF_STATUS) else errors.DraError
    return (kind or errors.DraError)(text_of(err))


def call(function: Callable[..., int], *args: Any) -> None:
    """Calls what returns a dra_status and takes a dra_error last."""
    err = _c.dra_error()
    status = function(*args, ctypes.byref(err))
    if status:
        raise fail(err, status)


def make(function: Callable[..., int], *args: Any) -> int:
    """The same with an `out` before the error; returns its address."""
    out = ctypes.c_void_p()
    call(function, *args, ctypes.byref(out))
    return out.value or 0


# ---- handles -------------------------------------------------------------------------------------

_forks = [0]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forks.__setitem__(0, _forks[0] + 1))


class _Core:
    """An address and how many handles need it: its own, and those that borrow it. The collector of
    cycles finalises in any order, so that order is kept here."""

    __slots__ = ("address", "destroy", "forks", "needed", "lends")
    lock = threading.RLock()

    def __init__(self, address: int, destroy: Callable[[int], Any], lends: List["_Core"]) -> None:
        self.address, self.destroy, self.forks = address, destroy, _forks[0]
        self.needed, self.lends = 0, lends
        for core in [self, *lends]:
            core.needed += 1

    def release(self) -> None:
        with _Core.lock:
            self.needed -= 1
            if self.needed:
                return
        if self.address and self.forks == _forks[0]:
            self.destroy(self.address)
        for core in self.lends:
            core.release()


class Handle:
    """What the library made and destroys. Other handles that it is given are borrowed: they go
    after it. Numbers in its memory may be looked at, so it goes when nobody holds it any more."""

    __slots__ = ("_core", "_holds", "__weakref__")

    def __init__(self, address: int, destroy: Callable[[int], Any], *holds: Any) -> None:
        self._core = _Core(address, destroy, [h._core for h in holds if isinstance(h, Handle)])
        self._holds = holds

    @property
    def at(self) -> int:
        """Its address. A process that was forked has none of the library's threads, and so none
        of its handles."""
        if self._core.forks != _forks[0]:
            raise errors.ClosedError("a handle of libdra was made before this process was forked: "
                                     "load the model again here, or start the process by spawn")
        return self._core.address

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None:
            core.release()

    def __reduce__(self) -> Any:
        raise no_pickle("a handle of libdra")


class Config:
    """A config of a model that the library has read; `at` points to its struct."""

    __slots__ = ("at", "_handle")

    def __init__(self, read: Callable[..., int], *args: Any) -> None:
        self.at = at = ctypes.POINTER(_c.dra_model_config)()
        call(read, *args, ctypes.byref(at))
        destroy = lib.dra_model_config_destroy
        self._handle = Handle(ctypes.addressof(at.contents), lambda _: destroy(at))

    def set(self, name: str, value: Any) -> None:
        """One field by its dotted name."""
        word = value if isinstance(value, str) else json.dumps(value)
        call(lib.dra_model_config_set, self.at, text_bytes(name), text_bytes(word))


def preset_config(name: str, settings: Mapping[str, Any]) -> Config:
    """A preset with keys changed by their dotted names. Where they give it another memory, what it
    says besides and that memory does not have is dropped, as on the command line."""
    config = Config(lib.dra_preset_config, text_bytes(name))
    for key, value in settings.items():
        config.set(key, value)
    keys = (ctypes.c_char_p * len(settings))(*[text_bytes(key) for key in settings])
    dropped = ctypes.create_string_buffer(200)
    call(lib.dra_model_config_fit, config.at, len(settings), ctypes.addressof(keys), dropped,
         len(dropped))
    if dropped.value:
        warnings.warn("dropped %s of the preset %s: not for this mixer" %
                      (dropped.value.decode(), name), stacklevel=4)
    return config


def parse_config(config: Mapping[str, Any]) -> Config:
    text = json.dumps(config).encode()
    return Config(lib.dra_model_config_parse, b"config", text, len(text))


def no_pickle(what: str) -> TypeError:
    return TypeError("%s cannot be pickled or copied: it is memory of this process; save the model "
                     "and load it again, or pickle states" % what)


# ---- text and arrays -----------------------------------------------------------------------------

def path_bytes(path: Path) -> bytes:
    out = os.fsencode(path)
    if b"\0" in out:
        raise errors.InvalidValue("path: found a NUL in %r" % out)
    return out


def text_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class Lent:
    """Keeps what C borrows: strings, arrays and lists of addresses."""

    def __init__(self) -> None:
        self._kept: List[Any] = []

    def keep(self, thing: Any) -> Any:
        self._kept.append(thing)
        return thing

    def strings(self, texts: List[bytes]) -> Optional[int]:
        if not texts:
            return None
        array = (ctypes.c_char_p * len(texts))(*texts)
        return ctypes.addressof(self.keep(array))


def view(address: int, shape: Tuple[int, ...], dtype: Any, owner: Any,
         writeable: bool = False) -> np.ndarray:
    """Memory of the library as an array, without a copy; `owner` lives as long as the array."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    memory._owner = owner
    out = np.frombuffer(memory, dtype).reshape(shape)
    out.flags.writeable = writeable
    return out


def as_array(x: Any, what: str) -> np.ndarray:
    """An array as it is: NumPy's, or that of another library by DLPack, without a copy."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError) as e:
            raise errors.DeviceError("%s: expected an array in memory of the CPU: %s" %
                                     (what, e)) from None
    raise errors.DTypeError("%s: expected an array, found %s" % (what, type(x).__name__))


def ids_of(x: Any, what: str = "ids") -> np.ndarray:
    """Token ids: an int32 array as it is, or a list of numbers. Arrays of other types are
    refused, since a cast would be a copy that nobody asked for."""
    if isinstance(x, (list, tuple)):
        try:
            array = np.array(x, dtype=np.int64 if len(x) else np.int32)
        except (ValueError, TypeError, OverflowError):
            raise errors.DTypeError("%s: expected whole numbers in rows of one length" %
                                    what) from None
        if np.asarray(x).dtype.kind not in "iu" and len(x):
            raise errors.DTypeError("%s: expected whole numbers, found %s" %
                                    (what, np.asarray(x).dtype))
        if array.size and (array.min() < -2**31 or array.max() >= 2**31):
            raise errors.OutOfRange("%s: expected 32 bits, found %d" % (
                what, array.max() if array.max() >= 2**31 else array.min()))
        return array.astype(np.int32)
    array = as_array(x, what)
    if array.dtype != np.int32:
        raise errors.DTypeError("%s: expected int32, found %s; .astype(numpy.int32) makes a copy "
                                "that is" % (what, array.dtype))
    return np.ascontiguousarray(array)


def reals_of(x: Any, what: str) -> np.ndarray:
    """Real numbers of the library's type, finite and dense."""
    array = as_array(x, what)
    if array.dtype != REAL:
        raise errors.DTypeError("%s: expected %s, found %s; .astype(numpy.%s) makes a copy that is"
                                % (what, REAL, array.dtype, REAL))
    array = np.ascontiguousarray(array)
    if not np.isfinite(array).all():
        raise errors.InvalidValue("%s: expected finite numbers, found NaN or infinity" % what)
    return array


def address(array: np.ndarray) -> int:
    return array.ctypes.data
