"""Files of dra read by the safetensors library and the other way round, bit for bit; and damaged
files: what one of them accepts the other does, too, apart from what dra refuses on purpose.

    files.py LIBRARY...
"""
import ctypes
import pathlib
import sys
import tempfile
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p

import torch

import dra

try:
    import safetensors
    import safetensors.torch
except ImportError:
    print("files: skipped, the Python package safetensors is not there")
    sys.exit(0)

Item = dra.struct("Item", name=c_char_p, dtype=c_int, shape=dra.Shape, data=c_void_p,
                  make=c_void_p, user=c_void_p)
Metadata = dra.struct("Metadata", key=c_char_p, value=c_char_p)
Info = dra.struct("Info", name=c_char_p, dtype_name=c_char_p, dtype=c_int, shape=dra.Shape,
                  data=c_void_p, bytes=c_size_t)
TORCH = {dra.F32: torch.float32, dra.F64: torch.float64, dra.BF16: torch.bfloat16,
         dra.F16: torch.float16, dra.I32: torch.int32, dra.BOOL: torch.bool}
OTHERS = [torch.uint8, torch.int8, torch.int16, torch.int64, torch.complex64, torch.float8_e4m3fn,
          torch.float8_e5m2]
SHAPES = [(), (1,), (0,), (3, 5), (2, 0, 4), (1, 2, 1, 3, 1, 2)]
METADATA = {"format": "pt", "text": "two\nlines, \"quotes\", 水"}


def bits(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def random_tensor(dtype, shape):
    if dtype == torch.bool:
        return torch.rand(shape) < 0.5
    size = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 256, (*shape, size), dtype=torch.uint8)  # any bits, NaN among them
    return raw.view(dtype).reshape(shape)


def tensors_of(dtypes):
    return {f"{str(d)[6:]}/é{i}": random_tensor(d, s) for d in dtypes
            for i, s in enumerate(SHAPES)}


def dra_write(lib, path, tensors, metadata):
    """By dra_tensors_write()."""
    numbers = {t: d for d, t in TORCH.items()}
    data = {name: ctypes.create_string_buffer(bits(t)) for name, t in tensors.items()}
    items = (Item * len(tensors))(*[
        (name.encode(), numbers[t.dtype],
         dra.Shape(t.dim(), (ctypes.c_int64 * dra.MAX_RANK)(*t.shape)),
         ctypes.addressof(data[name])) for name, t in tensors.items()])
    pairs = (Metadata * len(metadata))(*[(k.encode(), v.encode()) for k, v in metadata.items()])
    lib.check("tensors_write", str(path).encode(), items, c_size_t(len(items)), pairs,
              c_size_t(len(pairs)))


def dra_read(lib, path):
    """{name: (dtype name, shape, bytes)} and the metadata."""
    handle = c_void_p()
    lib.check("tensors_open", str(path).encode(), byref(handle))
    lib.c.dra_tensors_count.restype = lib.c.dra_tensors_metadata_count.restype = c_size_t
    lib.c.dra_tensors_at.restype = POINTER(Info)
    lib.c.dra_tensors_metadata_at.restype = POINTER(Metadata)
    tensors, metadata = {}, {}
    for i in range(lib.call("tensors_count", handle)):
        info = lib.call("tensors_at", handle, c_size_t(i)).contents
        tensors[info.name.decode()] = (info.dtype_name.decode(),
                                       tuple(info.shape.dim[:info.shape.rank]),
                                       ctypes.string_at(info.data, info.bytes))
    for i in range(lib.call("tensors_metadata_count", handle)):
        item = lib.call("tensors_metadata_at", handle, c_size_t(i)).contents
        metadata[item.key.decode()] = item.value.decode()
    lib.call("tensors_close", handle)
    return tensors, metadata


def dra_to_safetensors(lib, path):
    tensors = tensors_of(TORCH.values())
    dra_write(lib, path, tensors, METADATA)
    found = safetensors.torch.load_file(path)
    assert found.keys() == tensors.keys()
    for name, t in tensors.items():
        assert found[name].dtype == t.dtype and found[name].shape == t.shape, name
        assert bits(found[name]) == bits(t), name
    with safetensors.safe_open(path, "pt") as f:
        assert f.metadata() == METADATA
    return f"{len(tensors)} tensors"


def safetensors_to_dra(lib, path):
    tensors = tensors_of([*TORCH.values(), *OTHERS])
    safetensors.torch.save_file(tensors, path, METADATA)
    found, metadata = dra_read(lib, path)
    assert found.keys() == tensors.keys() and metadata == METADATA
    with safetensors.safe_open(path, "pt") as f:
        for name, t in tensors.items():
            dtype = f.get_slice(name).get_dtype()
            assert found[name] == (dtype, tuple(t.shape), bits(t)), name
    return f"{len(tensors)} tensors"


def accepts(function, *args):
    """None, or why not."""
    try:
        function(*args)
    except (dra.Error, safetensors.SafetensorError) as error:
        return str(error)
    return None


def on_purpose(refusal):
    """Names with control characters and more axes than DRA_MAX_RANK are dra's own rules; that only
    spaces may follow the header is the format's, but safetensors takes tabs and lines."""
    return any(rule in refusal for rule in ("control character", "axes", "nothing but spaces"))


def damaged(lib, path):
    """Every byte of a small header by every value."""
    tensors = {"a": torch.ones(2, 1), "b": torch.zeros(0, dtype=torch.uint8),
               "c": torch.ones((), dtype=torch.bfloat16)}
    whole = safetensors.torch.save(tensors, {"k": "v"})
    length = 8 + int.from_bytes(whole[:8], "little")
    both = only_theirs = 0
    for at in range(length):
        for value in range(256):
            data = whole[:at] + bytes([value]) + whole[at + 1:]
            path.write_bytes(data)
            ours = accepts(dra_read, lib, path)
            theirs = accepts(safetensors.deserialize, data)
            agree = (ours is None) == (theirs is None) or (ours and on_purpose(ours))
            assert agree, f"byte {at} as {value}: dra {ours}, safetensors {theirs}"
            both += ours is None
            only_theirs += theirs is None and ours is not None
    return f"{256 * length} files, both accept {both}, dra refuses {only_theirs} on purpose"


def main():
    torch.manual_seed(0)
    failed = 0
    print(f"files compared with safetensors {safetensors.__version__}")
    for i, path in enumerate(sys.argv[1:]):
        lib = dra.Library(path)
        for test in (dra_to_safetensors, safetensors_to_dra, damaged)[:2 if i else 3]:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    found = test(lib, pathlib.Path(folder) / "f.safetensors")
                except (AssertionError, dra.Error, safetensors.SafetensorError) as error:
                    found, failed = f"FAILED: {error}", failed + 1
            print(f"{path:<30}{test.__name__:<22}{found}", flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
