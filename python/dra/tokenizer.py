"""Text to token ids and back."""
import ctypes
from typing import Any, Iterable, Optional

import numpy as np

from . import _c
from ._library import (Handle, Path, call, ids_of, lib, make, no_pickle, path_bytes, text_bytes,
                       view)
from .errors import InvalidValue, OutOfRange


class Tokenizer:
    """A tokenizer: of bytes, byte-level BPE or RWKV's, as its file says.

    >>> import dra
    >>> t = dra.Tokenizer()              # a token for each byte
    >>> t.encode("héllo")
    array([104, 195, 169, 108, 108, 111], dtype=int32)
    >>> t.decode(t.encode("héllo"))
    'héllo'
    >>> len(t)
    256
    """

    def __init__(self, path: Optional[Path] = None, *, _handle: Optional[Handle] = None) -> None:
        if _handle is None:
            address = (make(lib.dra_tokenizer_bytes) if path is None else
                       make(lib.dra_tokenizer_open, path_bytes(path)))
            _handle = Handle(address, lib.dra_tokenizer_destroy)
        self._handle = _handle

    def encode(self, text: str, special: bool = True, begin: bool = False) -> np.ndarray:
        """The ids of a text, int32. With `special`, a special token that is written out in the
        text becomes that token; without, it is text like any other. With `begin`, the tokens that
        the tokenizer puts in front of a text come first, as many models want it."""
        if not isinstance(text, str):
            raise TypeError("text: expected str, found %s" % type(text).__name__)
        data = text_bytes(text)
        ids = _c.dra_ids()
        try:
            how = (0 if special else _c.DRA_ENCODE_PLAIN) | (_c.DRA_ENCODE_BEGIN if begin else 0)
            call(lib.dra_encode_as, self._handle.at, data, len(data), how, ctypes.byref(ids))
            return view(ids.data or 0, (ids.n,), np.int32, None).copy()
        finally:
            lib.dra_ids_free(ctypes.byref(ids))

    def decode(self, ids: Any, skip_special: bool = False) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD."""
        decoder = Decoder(self, skip_special)
        if isinstance(ids, (int, np.integer)):
            ids = [int(ids)]
        parts = [decoder.push(int(i)) for i in ids_of(ids).reshape(-1)]
        return "".join(parts) + decoder.flush()

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""
        size = ctypes.c_size_t()
        text = lib.dra_tokenizer_piece(self._handle.at, token, ctypes.byref(size))
        if not text:
            raise OutOfRange("no token %d" % token)
        return ctypes.string_at(text, size.value)

    def id(self, text: str) -> Optional[int]:
        """The token with exactly this text; None: there is none."""
        found = lib.dra_tokenizer_id(self._handle.at, text_bytes(text))
        return None if found < 0 else found

    @property
    def end(self) -> Optional[int]:
        """The token that ends a text; None: there is none."""
        found = lib.dra_tokenizer_end(self._handle.at)
        return None if found < 0 else found

    def save(self, path: Path) -> None:
        """Writes a tokenizer.json."""
        call(lib.dra_tokenizer_save, self._handle.at, path_bytes(path))

    def __len__(self) -> int:
        return lib.dra_tokenizer_size(self._handle.at)

    def __repr__(self) -> str:
        return "<dra.Tokenizer of %d tokens>" % len(self)

    def __reduce__(self) -> Any:
        raise no_pickle("a tokenizer")


class Decoder:
    """Text of tokens as they come, whole characters only."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = False) -> None:
        self._handle = Handle(make(lib.dra_decoder_create, tokenizer._handle.at, skip_special),
                              lib.dra_decoder_destroy, tokenizer._handle)
        self._text, self._bytes = ctypes.c_char_p(), ctypes.c_size_t()

    def push(self, token: int) -> str:
        call(lib.dra_decoder_push, self._handle.at, token, ctypes.byref(self._text),
             ctypes.byref(self._bytes))
        return ctypes.string_at(self._text, self._bytes.value).decode()

    def flush(self) -> str:
        lib.dra_decoder_flush(self._handle.at, ctypes.byref(self._text),
                              ctypes.byref(self._bytes))
        return ctypes.string_at(self._text, self._bytes.value).decode()


def train(paths: Iterable[Path], size: int, special: Iterable[str] = ()) -> Tokenizer:
    """A byte-level BPE of `size` tokens, learned from text files."""
    files = [path_bytes(p) for p in paths]
    marks = [text_bytes(s) for s in special]
    if not files:
        raise InvalidValue("tokenizer: expected one file or more to learn from")
    config = _c.dra_tokenizer_config(n=len(files), size=size, n_special=len(marks))
    lists = [(ctypes.c_char_p * len(x))(*x) for x in (files, marks)]
    config.paths, config.special = (ctypes.addressof(x) for x in lists)
    out = make(lib.dra_tokenizer_train, ctypes.byref(config),
               _c.FUNCTIONS["dra_tokenizer_train"]()[1][1](), None)
    return Tokenizer(_handle=Handle(out, lib.dra_tokenizer_destroy))
