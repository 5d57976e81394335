"""The state of sequences: what a model has read, as a value."""
import ctypes
import html
import os
import tempfile
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Tuple

import numpy as np

from . import _c, _report
from ._library import (REAL, Handle, Path, address, call, lib, make, path_bytes, reals_of, view)
from .errors import InvalidValue, ShapeError, UnknownName

if TYPE_CHECKING:
    from .model import Model


class State:
    """What one sequence, or a batch of them, has left in the memory of a model.

    Models make states (`m.state()`), reading advances them, and nothing else keeps one: a model
    serves any number of them. `fork()` copies, `save()` writes a file that `m.load_state()` and
    the command line read, and pickle does the same in memory. `s["layers.0.mixer.S"]` is a tensor
    of it by name: where its size is fixed, and on the CPU, an array that *is* this memory, so that
    it changes as the model reads and may be changed itself. Items, which grow by each token (the
    keys and values of attention), are copied.

    >>> import dra
    >>> m = dra.load("dra-delta-tiny")
    >>> s = m.read("Once upon", m.state())
    >>> s.tokens, list(s)[:2], s["layers.0.mixer.S"].shape
    (9, ['layers.0.mixer.x', 'layers.0.mixer.S'], (6, 32, 32))
    >>> t = s.fork()
    >>> m.read(" a time", t).tokens, s.tokens
    (16, 9)
    """

    def __init__(self, model: Optional["Model"], states: Optional[Handle],
                 logits: Optional[np.ndarray] = None, seen: Optional[np.ndarray] = None) -> None:
        self._model, self._states, self._packed = model, states, b""
        self._logits, self._seen = logits, seen

    # -- what it belongs to

    def _bind(self, model: "Model") -> None:
        """Makes it usable by this model: one that was unpickled belongs to nothing yet."""
        if self._model is None:
            other = model.load_state(self._packed)
            self._model, self._states = model, other._states
            self._logits, self._seen, self._packed = other._logits, other._seen, b""
        if self._model is not model:
            raise InvalidValue("state: it belongs to another model, %r; m.load_state(s) copies one "
                               "to a model of the same weights" % self._model)

    def _owner(self) -> "Model":
        if self._model is None:
            raise InvalidValue("state: it was unpickled and belongs to no model yet: read on with "
                               "one, or m.load_state(s)")
        self._model._open()
        return self._model

    @property
    def _at(self) -> int:
        self._owner()
        assert self._states is not None
        return self._states.at

    @property
    def batch(self) -> int:
        """How many sequences."""
        return lib.dra_states_batch(self._at)

    @property
    def tokens(self) -> int:
        """Tokens that the first sequence has read."""
        return lib.dra_states_tokens(self._at, 0)

    @property
    def nbytes(self) -> int:
        """Bytes of what is live."""
        return lib.dra_states_bytes(self._at)

    @property
    def logits(self) -> np.ndarray:
        """What follows the last tokens: (V), of a batch (B, V)."""
        if self._logits is None:
            raise InvalidValue("state: it has read nothing, so no logits follow")
        return self._logits[0] if self.batch == 1 else self._logits

    # -- copies and files

    def fork(self) -> "State":
        """A copy that goes its own way."""
        m = self._owner()
        with m._lock:
            other = make(lib.dra_states_fork, self._at)
        return State(m, m._hold_states(other), *_copies(self))

    def reset(self) -> "State":
        """Back to the beginning."""
        m = self._owner()
        with m._lock:
            call(lib.dra_states_reset, self._at, -1)
            self._logits = self._seen = None
        return self

    def save(self, path: Path) -> None:
        """Writes a state file, whole or not at all."""
        m = self._owner()
        with m._lock:
            call(lib.dra_context_save, m._model.at, m._weights.at,
                 ctypes.byref(self._context(file=True)), path_bytes(path))

    def to_bytes(self) -> bytes:
        """The bytes of such a file."""
        if self._model is None:
            return self._packed
        with tempfile.TemporaryDirectory(prefix="dra-") as folder:
            path = os.path.join(folder, "state")
            self.save(path)
            with open(path, "rb") as f:
                return f.read()

    def __reduce__(self) -> Any:
        return _unpack, (self.to_bytes(),)

    # -- tensors by name

    def _spec(self, name: str) -> Tuple[int, Any]:
        specs = self._owner()._state_specs
        i = lib.dra_specs_find(specs, name.encode())
        if i < 0:
            raise UnknownName("state: there is no tensor %r; it has %s" %
                              (name, ", ".join(self) or "none"))
        return i, lib.dra_specs_at(specs, i).contents

    def keys(self) -> List[str]:
        specs = self._owner()._state_specs
        return [lib.dra_specs_at(specs, i).contents.name.decode()
                for i in range(lib.dra_specs_count(specs))]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return lib.dra_specs_count(self._owner()._state_specs)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.keys()

    def __getitem__(self, name: str) -> np.ndarray:
        i, spec = self._spec(name)
        shape = tuple(spec.shape.dim[:spec.shape.rank])
        B = self.batch
        at = lib.dra_states_at(self._at, i, 0) if B else None
        if at:
            return view(at, (shape if B == 1 else (B,) + shape), REAL, self._states, True)
        rows = [self._read_row(i, b, spec, shape) for b in range(B)]
        if B == 1:
            return rows[0]
        if len({r.shape for r in rows}) > 1:
            raise ShapeError("state: %s has other numbers of items in each row: %s" %
                             (name, [len(r) for r in rows]))
        return np.stack(rows) if rows else np.empty((0,) + shape, REAL)

    def _read_row(self, i: int, row: int, spec: Any, shape: Tuple[int, ...]) -> np.ndarray:
        """A copy of a tensor of one sequence; of items those that are live."""
        size = lib.dra_states_size(self._at, i, row)
        out = np.empty(size, REAL)
        call(lib.dra_states_read, self._at, i, row, address(out), size)
        if spec.items or spec.context:
            each = int(np.prod(shape, dtype=np.int64))
            shape = (size // each if each else 0,) + shape
        return out.reshape(shape)

    def __setitem__(self, name: str, value: Any) -> None:
        i, _ = self._spec(name)
        now = self[name]
        array = reals_of(value, "state: " + name)
        if array.shape != now.shape:
            raise ShapeError("state: %s has shape %s, found %s" % (name, now.shape, array.shape))
        rows = array if self.batch != 1 else array[None]
        with self._owner()._lock:
            for b in range(self.batch):
                row = np.ascontiguousarray(rows[b])
                call(lib.dra_states_write, self._at, i, b, address(row), row.size)

    # -- what generators take and give

    def _context(self, file: bool = False) -> "_c.dra_context":
        """All that is needed to continue; it borrows what this has."""
        if self._logits is None and (file or self.tokens):
            V, B = self._owner().vocab, self.batch
            self._logits, self._seen = np.zeros((B, V), REAL), np.zeros((B, V), bool)
        out = _c.dra_context(states=self._at)
        if self._logits is not None and self._seen is not None:
            out.logits, out.seen = address(self._logits), address(self._seen)
        return out

    def _adopt(self, context: "_c.dra_context") -> None:
        """Becomes a context of one sequence, in the memory that it has."""
        call(lib.dra_states_copy, self._at, 0, context.states, 0)
        V = self._owner().vocab
        self._logits = view(context.logits, (1, V), REAL, None).copy()
        self._seen = view(context.seen, (1, V), np.bool_, None).copy()

    def _note(self, ids: np.ndarray, logits: np.ndarray) -> None:
        """It has read ids (B, T), and logits (B, V) follow."""
        B = len(ids)
        if self._seen is None:
            self._seen = np.zeros((B, logits.shape[1]), bool)
        self._seen[np.arange(B)[:, None], ids] = True
        if self._logits is None:
            self._logits = np.empty_like(logits)
        self._logits[...] = logits

    def __repr__(self) -> str:
        if self._model is None:
            return "<dra.State, unpickled, %d bytes>" % len(self._packed)
        if self._model.closed:
            return "<dra.State of a closed model>"
        rows = "" if self.batch == 1 else "%d sequences, " % self.batch
        return "<dra.State: %s%d tokens read, %d bytes>" % (rows, self.tokens, self.nbytes)

    def report(self) -> "_report.Report":
        """The shape and the size of its tensors: text, and a table in a notebook."""
        self._owner()
        return _report.of_state(self)

    def _repr_html_(self) -> str:
        if self._model is None or self._model.closed:
            return html.escape(repr(self))
        return self.report()._repr_html_()


def _copies(s: State) -> Tuple[Optional[np.ndarray], Optional[np.ndarray]]:
    return (None if s._logits is None else s._logits.copy(),
            None if s._seen is None else s._seen.copy())


def _unpack(packed: bytes) -> State:
    out = State(None, None)
    out._packed = packed
    return out
