"""Files of models: folders, other formats, other dtypes."""
import ctypes
import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Optional

from . import _c
from ._library import Config, Path, call, lib, path_bytes, text_bytes
from .errors import FileError, InvalidValue, UnknownName
from .opening import load_folder
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .model import Model


class Saving:
    """The part of a model that writes files."""

    def save(self, folder: Path, overwrite: bool = False, *, format: Optional[str] = None,
             dtype: Optional[str] = None) -> None:
        """Writes a model folder: config, weights, tokenizer. `format` is one of
        `dra convert --as`: "dra", "gpt2", "llama", "x-transformers", ..., "hf" (that of Hugging
        Face for this kind of model), "gguf" (one file); as it was loaded, if it is not said.
        `dtype` is that of matrices: "f32", "f16", "bf16", or blocks of few bits, as "q8_0"."""
        kind = self._format_number(format)
        number = _dtype_number(dtype, "save") if dtype is not None else _c.DRA_F32
        plain = format is None and dtype is None
        with self._lock:
            if kind == _c.DRA_FORMAT_GGUF and not plain:
                return self._save_file(folder, overwrite, kind, number)
            if not os.path.exists(folder):
                return self._save_as(path_bytes(folder), plain, kind, number)
            if lib.dra_folder_model(path_bytes(folder)) and not overwrite:
                raise FileError("%s: there is a model already; overwrite=True replaces it" %
                                os.fspath(folder))
            stage = ctypes.create_string_buffer(4096)
            call(lib.dra_folder_stage, path_bytes(folder), stage, len(stage))
            try:
                if not plain:
                    os.rmdir(stage.value)  # a conversion makes its folder itself
                self._save_as(stage.value, plain, kind, number)
                call(lib.dra_folder_replace, path_bytes(folder), stage.value)
            except BaseException:
                lib.dra_folder_drop(stage.value)
                raise

    def _save_as(self, folder: bytes, plain: bool, kind: int, dtype: int) -> None:
        if plain:
            self._save_to(folder)
        else:
            self._convert(folder, kind, dtype)

    def _save_file(self, path: Path, overwrite: bool, kind: int, dtype: int) -> None:
        if os.path.exists(path) and not overwrite:
            raise FileError("%s: there is a file already; overwrite=True replaces it" %
                            os.fspath(path))
        fresh = path_bytes(path) + b".%d.tmp" % os.getpid()
        try:
            self._convert(fresh, kind, dtype)
            _replace(fresh, path)
        except BaseException:
            if os.path.exists(fresh):
                os.remove(fresh)
            raise

    def _format_number(self, name: Optional[str]) -> int:
        """Of a format by its name; as it was loaded, if none is said."""
        config = lib.dra_model_config_of(self._open().at)
        if name is None:
            return config.contents.format
        if name == "hf":
            found = lib.dra_model_config_class(config)
            if not found:
                raise InvalidValue("save: Hugging Face has no class for this model, expected "
                                   "GPT-2, RWKV or one of Llama's family; format='dra' takes "
                                   "every model")
            return found
        names = [lib.dra_format_name(k).decode() for k in range(_c.DRA_FORMAT_COUNT)]
        if name not in names:
            raise UnknownName("save: no format %r; there are hf, %s" % (name, ", ".join(names)))
        return names.index(name)

    def _convert(self, to: bytes, kind: int, dtype: int, memory: Optional[str] = None,
                 seed: int = 0) -> None:
        """Writes it in another format, matrices in another dtype, with a second memory."""
        with tempfile.TemporaryDirectory(prefix="dra-") as room:
            source = os.path.join(os.fsencode(room), b"model")
            self._save_to(source)
            config = Config(lib.dra_folder_config, source)
            if memory is not None:
                call(lib.dra_model_config_graft, config.at, text_bytes(memory))
            config.at.contents.format = kind
            c = _c.dra_convert_config(to=to, dtype=dtype, config=config.at, seed=seed)
            setattr(c, "from", source)
            call(lib.dra_convert, ctypes.byref(c))

    def _save_to(self, folder: bytes) -> None:
        config = lib.dra_model_config_of(self._open().at)
        call(lib.dra_folder_save_config_like, folder, config,
             path_bytes(self._path) if self._path is not None and os.path.isdir(self._path)
             else None)
        tokenizer = self._tokenizer_or_none()
        call(lib.dra_folder_save_tokenizer, folder, tokenizer and tokenizer._handle.at, self.vocab)
        call(lib.dra_weights_save, self._weights.at, os.path.join(folder, b"model.safetensors"))

    def _tokenizer_or_none(self) -> Optional[Tokenizer]:
        try:
            return self.tokenizer
        except InvalidValue:
            return None

    def quantise(self, dtype: str, folder: Optional[Path] = None) -> "Model":
        """The same model with matrices in blocks of few bits: "q8_0", "q4_0", ... Written to
        `folder`, or kept in memory only.

        >>> import dra
        >>> m = dra.load("dra-delta-tiny")
        >>> q = m.quantise("q8_0")
        >>> float(abs(q("Once").logits - m("Once").logits).max()) < 0.1
        True
        """
        return self._changed(folder, dtype, dtype=_dtype_number(dtype, "quantise"))

    def graft(self, memory: str, folder: Optional[Path] = None, *, seed: int = 0) -> "Model":
        """The same model with a second memory next to the attention of every layer: "delta",
        "gru", ... It still puts out what it did; training (blend_steps) lets the memory take over.
        Written to `folder`, or kept in memory only.

        >>> import dra
        >>> m = dra.load("gpt2-tiny")
        >>> g = m.graft("delta")
        >>> bool((g("Once").logits == m("Once").logits).all()), g.config["mixer"]["blend"]
        (True, 'schedule')
        """
        return self._changed(folder, memory, dtype=_c.DRA_F32, memory=memory, seed=seed)

    def _changed(self, folder: Optional[Path], words: str, **how: Any) -> "Model":
        """A model that a conversion makes of this one."""
        with tempfile.TemporaryDirectory(prefix="dra-") as room, self._lock:
            target = os.fspath(folder) if folder is not None else os.path.join(room, "changed")
            self._convert(path_bytes(target), _c.DRA_FORMAT_DRA, **how)
            model, weights = load_folder(target)  # mapped files stay, also where they are removed
        return type(self)(model, weights, self._device, "%s, %s" % (self._title, words), folder,
                     self._tokenizer)

    @contextmanager
    def _as_folder(self) -> Iterator[bytes]:
        """Where its weights are as they are now: its own folder or file, or one for a while."""
        if self._path is not None and not self._edited:
            yield path_bytes(self._path)
            return
        with tempfile.TemporaryDirectory(prefix="dra-") as room:
            folder = os.path.join(os.fsencode(room), b"model")
            self._save_to(folder)
            yield folder


def _replace(fresh: bytes, path: Path) -> None:
    """Puts a file into the place of another."""
    try:
        os.replace(fresh, path_bytes(path))
    except OSError as e:
        raise FileError("%s: %s" % (os.fspath(path), e.strerror)) from None


def _dtype_number(name: str, what: str) -> int:
    names = {}
    for i in range(_c.DRA_DTYPE_COUNT):
        info = lib.dra_dtype_get(i).contents
        if info.is_float or info.block_elements > 1:
            names[info.name.decode().lower()] = i
    if name.lower() not in names:
        raise UnknownName("%s: no dtype %r; there are %s" % (what, name, ", ".join(names)))
    return names[name.lower()]
