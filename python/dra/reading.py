"""Reading: what a model makes of tokens, and the states that it advances."""
import ctypes
import os
import tempfile
from contextlib import closing
from typing import (Any, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple, Union)

import numpy as np

from . import _c, _progress
from . import forward as named
from ._library import REAL, Handle, Lent, Path, address, call, ids_of, lib, make, path_bytes, view
from .errors import InvalidValue, OutOfRange, ShapeError, UnknownName
from .state import State

#: Tokens that are read at a time, as generators do: between pieces Ctrl-C is noticed.
PIECE = _c.DRA_GENERATOR_PIECE

Text = Union[str, Sequence[int], np.ndarray]


class Output(NamedTuple):
    """What a model makes of ids (T), or with an axis B in front."""
    logits: np.ndarray  #: (T, V), or those of the last `keep` tokens
    hidden: np.ndarray  #: (T, C), what the head reads
    state: State
    attentions: Mapping[str, np.ndarray] = {}  #: "layers.0.attention" (H, T, rows), if asked for


def is_fresh(state: Optional[State]) -> bool:
    """Whether nothing was read before, so that a text begins there."""
    return state is None or state._logits is None


class Reading:
    """The part of a model that reads."""

    def state(self, batch: int = 1) -> State:
        """A state that has read nothing, of `batch` sequences."""
        at = make(lib.dra_states_create, self._device.at, self._states_of(), batch)
        return State(self, self._hold_states(at))

    def _states_of(self) -> int:
        self._open()
        return self._state_specs

    def _hold_states(self, at: int) -> Handle:
        return Handle(at, lib.dra_states_destroy, self._device, self._model, self._weights)

    def load_state(self, source: Union[Path, bytes, State]) -> State:
        """A state from a file, from bytes of one, or copied from a state of the same weights."""
        if isinstance(source, State):
            source = source.to_bytes()
        if isinstance(source, bytes):
            with tempfile.TemporaryDirectory(prefix="dra-") as folder:
                path = os.path.join(folder, "state")
                with open(path, "wb") as f:
                    f.write(source)
                return self.load_state(path)
        context = _c.dra_context()
        with self._lock:
            call(lib.dra_context_load, self._device.at, self._open().at, self._weights.at,
                 path_bytes(source), ctypes.byref(context))
            states, context.states = self._hold_states(context.states), None
            try:
                shape = lib.dra_states_batch(states.at), self.vocab
                logits = view(context.logits, shape, REAL, None).copy()
                seen = view(context.seen, shape, np.bool_, None).copy()
            finally:
                lib.dra_context_free(ctypes.byref(context))
        return State(self, states, logits, seen)

    def _ids(self, text: Text, what: str = "ids", begin: bool = True) -> np.ndarray:
        """Ids of a text, which begins or goes on, or those given: (T) or (B, T)."""
        if set(self._reads) != {"ids"}:
            raise InvalidValue("model: it reads %s: m.forward({...}) takes inputs by name" %
                               ", ".join(sorted(self._reads)))
        if isinstance(text, str):
            return self.tokenizer.encode(text, begin=begin)
        ids = ids_of(text, what)
        if ids.ndim not in (1, 2):
            raise ShapeError("%s: expected (T) or (B, T), found %s" % (what, ids.shape))
        if ids.size and not (0 <= int(ids.min()) and int(ids.max()) < self.vocab):
            bad = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
            raise OutOfRange("%s: found %d, expected 0 to %d" % (what, bad, self.vocab - 1))
        return ids

    def _reader(self, **outputs: Any) -> Handle:
        """A reader of a view; they are kept, with their compiled programs."""
        key = tuple(sorted(outputs.items()))
        if key not in self._readers:
            model = self._open()
            if outputs.get("maps"):
                self._shown = model = self._shown or named.maps_model(self)
            a_view = _c.dra_view(model=model.at, **outputs)
            module = self._module(a_view)
            at = make(lib.dra_reader_create, self._device.at, ctypes.byref(module))
            reader = Handle(at, lib.dra_reader_destroy, a_view, module, self._device, model,
                            self._model, self._weights)
            call(lib.dra_weights_bind, self._weights.at, reader.at)
            self._readers[key] = reader
        return self._readers[key]

    def _check_room(self, state: State, B: int, T: int) -> None:
        if state.batch != B:
            raise ShapeError("ids: %d rows, the state has %d" % (B, state.batch))
        room = self._positions
        if room and state.tokens + T > room:
            raise InvalidValue("ids: %d tokens after %d, the model has positions for %d; nothing "
                               "is cut off" % (T, state.tokens, room))

    def _pieces(self, state: State, T: int) -> Iterator[Tuple[int, int]]:
        """Where a text is cut: at multiples of PIECE from the beginning of the sequence, so that
        reading it in other parts has the same bits where `cut` says so."""
        at = 0
        while at < T:
            end = T if self._whole else min(T, at + PIECE - state.tokens % PIECE)
            yield at, end
            at = end

    def _run(self, reader: Handle, state: State, inputs: Mapping[str, np.ndarray]) -> None:
        """Reads the next tokens: arrays (B, T)."""
        T = inputs["ids"].shape[1]
        named = (_c.dra_named * len(inputs))()
        lent = Lent()
        for row, (name, array) in zip(named, inputs.items()):
            dense = lent.keep(np.ascontiguousarray(array))
            row.name, row.data, row.bytes = name.encode(), address(dense), dense.nbytes
        call(lib.dra_reader_read, reader.at, state._at, T, None, len(inputs), named)

    def _result(self, reader: Handle, name: str) -> np.ndarray:
        """An output of the last read, good until the next."""
        shape = _c.dra_shape()
        if not lib.dra_reader_result_shape(reader.at, name.encode(), ctypes.byref(shape)):
            raise UnknownName("model: it has no output %s" % name)
        at = lib.dra_reader_result(reader.at, name.encode())
        if not at and shape.dim[0]:
            raise MemoryError("model: no memory for %s" % name)
        return view(at or 0, tuple(shape.dim[:shape.rank]), REAL, None)

    def _head_check(self) -> None:
        if not lib.dra_model_config_is_language(lib.dra_model_config_of(self._open().at)) \
                and not self._whole:
            raise InvalidValue("model: it puts out no logits of tokens")

    def read(self, text: Text, state: Optional[State] = None, *,
             progress: Optional[bool] = False) -> State:
        """Reads a text, or ids, and returns the state, which was advanced; a new one if none is
        given. Only the logits that follow are computed: `state.logits`. `progress` shows a bar,
        where tqdm is installed; None: if a person looks."""
        ids, state = self._ids(text, begin=is_fresh(state)), self._state_for(text, state)
        rows = np.atleast_2d(ids)
        with self._lock:
            self._check_room(state, *rows.shape)
            reader = self._reader(logits=True, keep=1)
            with closing(_progress.bar(rows.shape[1], "read", progress, "tokens")) as bar:
                for at, end in self._pieces(state, rows.shape[1]):
                    part = rows[:, at:end]
                    self._run(reader, state, {"ids": part})
                    state._note(part, self._result(reader, "logits")[:, 0])
                    bar.update(end - at)
        return state

    def _state_for(self, text: Text, state: Optional[State]) -> State:
        self._open()
        if state is None:
            two = not isinstance(text, str) and np.ndim(text) == 2
            return self.state(len(text) if two else 1)
        if self._whole:
            raise InvalidValue("model: it reads a text as a whole and has no state")
        state._bind(self)
        return state

    def __call__(self, ids: Text, state: Optional[State] = None, keep: int = 0,
                 attentions: bool = False) -> Output:
        """What it makes of a text or of ids (T) or (B, T): `.logits`, of all tokens or of the last
        `keep`, and `.hidden`; `.state` is the state, which was advanced. With `attentions`, also
        the maps of each layer by name, for which it is read at once.

        >>> import dra, numpy as np
        >>> m = dra.load("dra-gru-tiny")
        >>> whole = m("Once upon a time")
        >>> whole.logits.shape, whole.hidden.shape
        ((16, 256), (16, 192))
        >>> s = m.state()
        >>> parts = [m(part, state=s).logits for part in ("Once ", "upon a", " time")]
        >>> bool((np.concatenate(parts) == whole.logits).all())
        True
        """
        self._head_check()
        ids_given = self._ids(ids, begin=is_fresh(state))
        state = self._state_for(ids, state)
        rows = np.atleast_2d(ids_given)
        B, T = rows.shape
        if keep < 0:
            raise InvalidValue("keep: expected 0 or more, found %d" % keep)
        if attentions:
            named.check_maps(self)
        kept = min(keep, T) if keep else T
        with self._lock:
            self._check_room(state, B, T)
            logits = np.empty((B, kept, self.vocab), REAL)
            hidden = np.empty((B, T, self._width()), REAL)
            maps: Mapping[str, np.ndarray] = {}
            for at, end in [(0, T)] if attentions else self._pieces(state, T):
                wanted = end - max(at, T - kept)  # how many logits of this piece
                reader = self._reader(logits=True, hidden=True, keep=int(wanted <= 1),
                                      **(named.MAPS if attentions else {}))
                self._run(reader, state, {"ids": rows[:, at:end]})
                got = self._result(reader, "logits")
                first = end - got.shape[1] - (T - kept)
                logits[:, max(first, 0):max(end - (T - kept), 0)] = got[:, max(-first, 0):]
                hidden[:, at:end] = self._result(reader, "hidden")
                state._note(rows[:, at:end], got[:, -1])
                maps = named.maps_of(self, reader) if attentions else maps
        if ids_given.ndim == 1:
            return Output(logits[0], hidden[0], state, {k: x[0] for k, x in maps.items()})
        return Output(logits, hidden, state, maps)

    def forward(self, inputs: Mapping[str, Any], state: Optional[State] = None, *,
                attentions: bool = False) -> "named.Outputs":
        """What it makes of inputs by name, each with an axis B: of models that read images,
        vectors, numbers or two texts, as `dra forward --inputs` has them. `.state` was advanced: it
        has the context, which later calls leave out.

        >>> import dra, numpy as np
        >>> m = dra.load("vit-tiny")
        >>> m.inputs
        {'img': (1, 8, 8)}
        >>> m.forward({"img": np.zeros((2, 1, 8, 8), np.float32)})["logits"].shape
        (2, 10)
        """
        return named.forward(self, inputs, state, attentions)

    @property
    def inputs(self) -> Dict[str, Tuple[int, ...]]:
        """What it reads, by name: the shape of a row, -1 for any number of tokens."""
        return {i.name: i.shape for i in named.inputs_of(self._open().at)}

    def _width(self) -> int:
        """Of hidden states."""
        return self._dim
