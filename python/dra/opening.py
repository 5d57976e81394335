"""Devices, presets and folders: what models are made of."""
import ctypes
import os
import weakref
from typing import Any, List, Mapping, Tuple, Union

from . import _c
from ._library import (Config, Handle, Path, call, lib, make, parse_config, path_bytes,
                       preset_config, text_bytes)
from .errors import DeviceError, UnknownName

_devices: "weakref.WeakValueDictionary[Tuple[Any, ...], Handle]" = weakref.WeakValueDictionary()


def open_device(name: str, threads: int) -> Handle:
    """A device by name: models share it, and with it its threads."""
    key = (name, threads, os.getpid())
    found = _devices.get(key)
    if found is None:
        if not name.startswith("cpu"):
            from . import _plugins  # takes longer to import than the rest
            _plugins.find(DeviceError)
        cpu = _c.dra_cpu_config(threads=threads)
        at = make(lib.dra_device_create, text_bytes(name), ctypes.byref(cpu))
        found = _devices[key] = Handle(at, lib.dra_device_destroy)
    return found


def presets() -> List[str]:
    """The names of the models that are built in: architectures, without trained weights.

    >>> import dra
    >>> "gpt2-tiny" in dra.presets()
    True
    """
    out: List[str] = []
    while True:
        row = lib.dra_preset_at(len(out))
        if not row:
            return out
        out.append(row.contents.name.decode())


def nearest_preset(name: str) -> str:
    """What the library says besides about a name that no preset has: "; did you mean ...?"."""
    try:
        Config(lib.dra_preset_config, text_bytes(name))
    except UnknownName as e:
        return "".join(str(e).partition(";")[1:])
    return ""


def from_config(config: Union[str, Mapping[str, Any]], setting: Mapping[str, Any],
                bf16_cache: bool = False) -> Handle:
    """A model of a preset's name or a config, with settings by their dotted names."""
    if isinstance(config, str):
        c = preset_config(config, setting)
    else:
        c = parse_config(config)
        for name, value in setting.items():
            c.set(name, value)
    c.at.contents.bf16_cache = bf16_cache
    return Handle(make(lib.dra_model_create, c.at), lib.dra_model_destroy)


def load_folder(path: Path, bf16_cache: bool = False) -> Tuple[Handle, Handle]:
    c = Config(lib.dra_folder_config, path_bytes(path))
    c.at.contents.bf16_cache = bf16_cache
    m = Handle(make(lib.dra_model_create, c.at), lib.dra_model_destroy)
    return m, Handle(make(lib.dra_weights_load, m.at, path_bytes(path)), lib.dra_weights_destroy, m)
