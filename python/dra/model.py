"""Models: loaded, read with, asked about."""
import ctypes
import html
import json
import math
import os
import tempfile
import threading
import weakref
from contextlib import closing, contextmanager
from typing import (Any, Callable, Dict, Iterator, List, Mapping, MutableMapping, NamedTuple,
                    Optional, Sequence, Tuple, Union)

import numpy as np

from . import _c, _progress, _report, generation
from . import forward as named
from ._library import (REAL, Config, Handle, Lent, Path, address, call, ids_of, lib, make,
                       no_pickle, parse_config, path_bytes, preset_config, reals_of, text_bytes,
                       view)
from .errors import (ClosedError, DeviceError, FileError, InvalidValue, OutOfRange, ShapeError,
                     UnknownName)
from .state import State
from .tokenizer import Tokenizer

#: Tokens that are read at a time, as generators do: between pieces Ctrl-C is noticed.
PIECE = _c.DRA_GENERATOR_PIECE

Text = Union[str, Sequence[int], np.ndarray]


class Output(NamedTuple):
    """What a model makes of ids (T), or with an axis B in front."""
    logits: np.ndarray  #: (T, V), or those of the last `keep` tokens
    hidden: np.ndarray  #: (T, C), what the head reads
    state: State
    attentions: Mapping[str, np.ndarray] = {}  #: "layers.0.attention" (H, T, rows), if asked for


class Score(NamedTuple):
    """How likely a text is: natural logarithms, of every token after what comes before it."""
    logprob: float  #: of the text, their sum
    tokens: int  #: how many
    logprobs: np.ndarray  #: (tokens)

    @property
    def perplexity(self) -> float:
        return math.exp(-self.logprob / self.tokens) if self.tokens else math.nan


class Gradients(Dict[str, np.ndarray]):
    """The gradient of every parameter by its name, and the mean loss in `loss`."""

    loss: float


# ---- loading -------------------------------------------------------------------------------------

_devices: "weakref.WeakValueDictionary[Tuple[Any, ...], Handle]" = weakref.WeakValueDictionary()


def _device(name: str, threads: int) -> Handle:
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


def _nearest_preset(name: str) -> str:
    """What the library says besides about a name that no preset has: "; did you mean ...?"."""
    try:
        Config(lib.dra_preset_config, text_bytes(name))
    except UnknownName as e:
        return "".join(str(e).partition(";")[1:])
    return ""


def _from_config(config: Union[str, Mapping[str, Any]], setting: Mapping[str, Any]) -> Handle:
    """A model of a preset's name or a config, with settings by their dotted names."""
    if isinstance(config, str):
        c = preset_config(config, setting)
    else:
        c = parse_config(config)
        for name, value in setting.items():
            c.set(name, value)
    return Handle(make(lib.dra_model_create, c.at), lib.dra_model_destroy)


def _load_folder(path: Path) -> Tuple[Handle, Handle]:
    model, weights = ctypes.c_void_p(), ctypes.c_void_p()
    call(lib.dra_folder_load, path_bytes(path), ctypes.byref(model), ctypes.byref(weights))
    m = Handle(model.value or 0, lib.dra_model_destroy)
    return m, Handle(weights.value or 0, lib.dra_weights_destroy, m)


def load(source: Union[Path, Mapping[str, Any]], device: str = "cpu", *, threads: int = 0,
         dtype: str = "f32", seed: int = 0, set: Optional[Mapping[str, Any]] = None,
         tokenizer: Union[None, Path, Tokenizer] = None) -> "Model":
    """A model from a folder or a file (safetensors with its config, GGUF, rwkv.cpp); or, with
    weights drawn from `seed`, of a preset's name or of a config like those in config.json.

    `device` is "cpu", or "cuda" and "cuda:1" where the plugin is; `threads` 0 means one for each
    processor. With `dtype` "bf16", weights of products are halved in size. `set` changes keys of a
    preset or config by their dotted names.

    >>> import dra
    >>> m = dra.load("dra-delta-tiny", seed=1, set={"depth": 2})
    >>> m.config["depth"], m.tokenizer
    (2, <dra.Tokenizer of 256 tokens>)
    """
    if dtype not in ("f32", "bf16"):
        raise InvalidValue("load: dtype is 'f32' or 'bf16', found %r" % dtype)
    if not isinstance(source, Mapping) and os.path.exists(source):
        if set:
            raise InvalidValue("load: a folder's config is what it is; set= is for presets")
        name: Optional[Path] = source
        model, weights = _load_folder(source)
    else:
        if not isinstance(source, Mapping) and os.fspath(source) not in presets():
            raise FileError("%s: no such folder, file or preset%s; models are not downloaded" %
                            (os.fspath(source), _nearest_preset(os.fspath(source))))
        name = None
        model = _from_config(source if isinstance(source, Mapping) else os.fspath(source),
                             set or {})
        weights = Handle(make(lib.dra_weights_draw, model.at, seed), lib.dra_weights_destroy, model)
    if dtype == "bf16":
        call(lib.dra_weights_to_bf16, weights.at)
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        tokenizer = Tokenizer(tokenizer)
    title = "config" if isinstance(source, Mapping) else os.path.basename(
        os.path.normpath(os.fspath(source)))
    return Model(model, weights, _device(device, threads), title, name, tokenizer)


class Parameters(MutableMapping[str, np.ndarray]):
    """The parameters of a model by name: arrays that are its memory, to be looked at. Setting one
    copies an array into it."""

    def __init__(self, model: "Model") -> None:
        self._of = model

    def _specs(self) -> int:
        return lib.dra_model_params(self._of._open().at)

    def __iter__(self) -> Iterator[str]:
        specs = self._specs()
        return iter([lib.dra_specs_at(specs, i).contents.name.decode()
                     for i in range(lib.dra_specs_count(specs))])

    def __len__(self) -> int:
        return lib.dra_specs_count(self._specs())

    def _find(self, name: str) -> Tuple[int, Tuple[int, ...]]:
        i = lib.dra_specs_find(self._specs(), name.encode())
        if i < 0:
            raise UnknownParameter("parameters: there is no %r" % name)
        shape = lib.dra_specs_at(self._specs(), i).contents.shape
        return i, tuple(shape.dim[:shape.rank])

    def __getitem__(self, name: str) -> np.ndarray:
        i, shape = self._find(name)
        at = lib.dra_weights_at(self._of._weights.at, i)
        if not at:
            raise MemoryError("parameters: no memory for " + name)
        return view(at, shape, REAL, self._of._weights)

    def __setitem__(self, name: str, value: Any) -> None:
        i, shape = self._find(name)
        array = reals_of(value, "parameters: " + name)
        if array.shape != shape:
            raise ShapeError("parameters: %s has shape %s, found %s" % (name, shape, array.shape))
        with self._of._lock:
            at = lib.dra_weights_edit(self._of._weights.at, i)
            if not at:
                raise MemoryError("parameters: no memory for " + name)
            view(at, shape, REAL, self._of._weights, True)[...] = array
            self._of._edited = True
            self._of._forget()

    def __delitem__(self, name: str) -> None:
        raise TypeError("parameters: a model keeps all of its parameters")


class UnknownParameter(UnknownName, KeyError):
    """No parameter of this name."""

    def __str__(self) -> str:
        return str(self.args[0])


# ---- a model -------------------------------------------------------------------------------------


class Model:
    """A model with its weights, on a device; `dra.load()` makes one.

    It keeps no state: what was read is in a `State` that the caller owns. Methods may be called
    from any thread; those of one model take turns, those of several run at the same time.
    """

    def __init__(self, model: Handle, weights: Handle, device: Handle, title: str,
                 path: Optional[Path], tokenizer: Optional[Tokenizer]) -> None:
        self._model, self._weights, self._device = model, weights, device
        self._title, self._path, self._lock = title, path, threading.RLock()
        self._readers: Dict[Any, Handle] = {}
        self._generators: Dict[Any, List[Handle]] = {}
        self._tokenizer, self._closed = tokenizer, False
        # Where others write parameters in place: how often they did, and when readers were made.
        self._changes: Optional[Callable[[], int]] = None
        self._changes_seen = 0
        self._edited = False  # whether weights are no longer those of the folder
        self._shown: Optional[Handle] = None  # the same model, made to show its maps
        at = model.at
        self._state_specs: int = lib.dra_model_state(at)
        size = lib.dra_model_config_text(lib.dra_model_config_of(at), None, 0)
        text = ctypes.create_string_buffer(size + 1)
        lib.dra_model_config_text(lib.dra_model_config_of(at), text, size + 1)
        self._config: Dict[str, Any] = json.loads(text.value.decode())
        c = lib.dra_model_config_of(at).contents
        learned = c.positions == _c.DRA_POSITIONS_LEARNED and not c.xl.memory
        self._dim: int = c.dim
        self._positions: int = c.context if learned else 0  # 0: any number of tokens
        module = self._module(_c.dra_view(model=at, hidden=True))
        self._whole: bool = module.whole
        self._reads = self._inputs()

    # -- life

    def _open(self) -> Handle:
        if self._closed:
            raise ClosedError("model: %s is closed" % self._title)
        if self._changes is not None and self._changes() != self._changes_seen:
            self._changes_seen = self._changes()
            self._forget()
        self._model.at  # not of another process
        return self._model

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Lets go of it; memory is free again when arrays that show it are gone, too."""
        with self._lock:
            self._closed = True
            self._forget()

    def _forget(self) -> None:
        """Readers and generators, whose prepared weights are no longer those of the model."""
        self._readers.clear()
        self._generators.clear()

    def __enter__(self) -> "Model":
        self._open()
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise no_pickle("a model")

    # -- what it is

    @property
    def config(self) -> Dict[str, Any]:
        """Its config, as in config.json; what is default is left out."""
        return json.loads(json.dumps(self._config))

    @property
    def vocab(self) -> int:
        """How many tokens there are; 0: it reads none."""
        return self._reads.get("ids", 0)

    @property
    def parameters(self) -> Parameters:
        """Its parameters by name, as arrays."""
        return Parameters(self)

    @property
    def parameter_count(self) -> int:
        return lib.dra_model_param_count(self._open().at)

    @property
    def cut(self) -> int:
        """A text that is read in parts gives the same bits as when it is read at once, where cuts
        are at multiples of this many tokens. 1: any cut. 0: none, they agree within rounding."""
        return lib.dra_model_cut(self._open().at)

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer; bytes, where there is none and the vocabulary has 256 tokens."""
        if self._tokenizer is None:
            folder = path_bytes(self._path) if self._path is not None else None
            at = make(lib.dra_tokenizer_open_folder, folder, self.vocab)
            self._tokenizer = Tokenizer(_handle=Handle(at, lib.dra_tokenizer_destroy))
        return self._tokenizer

    def _module(self, a_view: "_c.dra_view") -> Any:
        return lib.dra_view_module(ctypes.byref(a_view))

    def _inputs(self) -> Dict[str, int]:
        """What it reads, by name: of tokens the vocabulary, else 0."""
        out: Dict[str, int] = {}
        row = _c.dra_model_input()
        while lib.dra_model_input_at(self._model.at, len(out), ctypes.byref(row)):
            tokens = row.kind == _c.DRA_SOURCE_TOKENS and not row.numbers and not row.condition
            out[row.name.decode()] = row.vocab if tokens else 0
        return out

    def __repr__(self) -> str:
        if self._closed:
            return "<dra.Model %s, closed>" % self._title
        return "<dra.Model %s, %s parameters>" % (self._title, format(self.parameter_count, ","))

    def report(self) -> "_report.Report":
        """Its parameters by part, the size of its states, and how fast its memories forget: text,
        and tables in a notebook.

        >>> import dra
        >>> dra.load("dra-gru-tiny").report().title
        'dra.Model dra-gru-tiny, 1,871,320 parameters'
        """
        return _report.of_model(self)

    @property
    def decays(self) -> "List[_report.Decay]":
        """Every decay of its memories, with half-lives, as `dra info` lists them."""
        return _report.decays(self)

    def _repr_html_(self) -> str:
        if self._closed:
            return html.escape(repr(self))
        rows = "".join("<tr><td>%s</td><td><code>%s</code></td></tr>" %
                       (html.escape(k), html.escape(json.dumps(v)))
                       for k, v in self._config.items())
        return "%s<details><summary>config</summary><table>%s</table></details>" % (
            self.report()._repr_html_(), rows)

    # -- reading

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
        ids, state = self._ids(text, begin=_is_fresh(state)), self._state_for(text, state)
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
        ids_given = self._ids(ids, begin=_is_fresh(state))
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

    # -- questions about texts

    def score(self, texts: Any, state: Optional[State] = None, *,
              progress: Optional[bool] = False) -> Union[Score, List[Score]]:
        """How likely texts are: a `Score`, or a list of them for a list. With a state, each is what
        follows there, its first token too; the state stays as it is. `progress`: as of read(), of a
        list.

        >>> import dra
        >>> m = dra.load("dra-gru-tiny")
        >>> m.score("Once").tokens, [s.tokens for s in m.score(["a", "bc"], state=m.read("x"))]
        (3, [1, 2])
        """
        if _is_one(texts):
            return self._score(self._ids(texts, begin=_is_fresh(state)), state)
        return _progress.each(lambda t: self._score(self._ids(t, begin=_is_fresh(state)), state),
                              texts, "score", progress)

    def _score(self, ids: np.ndarray, state: Optional[State]) -> Score:
        return self._score_and_best(ids, state, best=False)[0]

    def _score_and_best(self, ids: np.ndarray, state: Optional[State],
                        best: bool = True) -> Tuple[Score, np.ndarray]:
        """A score, and the likeliest token in the place of each of those that are scored."""
        if ids.ndim != 1:
            raise ShapeError("score: expected ids (T), found %s" % (ids.shape,))
        first, likeliest = np.empty(0), []
        if state is not None and len(ids):
            state._bind(self)
            row = state.logits.astype(np.float64)
            likeliest.append(row.argmax()[None])
            row -= row.max()
            first = np.array([row[ids[0]] - np.log(np.exp(row).sum())])
        losses = np.empty(max(len(ids) - 1, 0), REAL)
        with self._lock:
            s = self.state() if state is None else state.fork()
            self._check_room(s, 1, max(len(ids) - 1, 0))
            reader = self._reader(losses=True, **({"logits": True} if best else {}))
            for at, end in self._pieces(s, len(losses)):
                goal = ids[None, at + 1:end + 1]
                self._run(reader, s, {"ids": ids[None, at:end], "targets": goal})
                losses[at:end] = self._result(reader, "losses")[0]
                if best:
                    likeliest.append(self._result(reader, "logits")[0].argmax(1))
        out = np.concatenate([first, -losses.astype(np.float64)])
        if np.isnan(out).any():
            raise InvalidValue("score: the model's logits are NaN")
        found = np.concatenate(likeliest) if likeliest else np.empty(0, np.int64)
        return Score(float(out.sum()), len(out), out), found

    def embed(self, texts: Any, pool: str = "mean", *,
              progress: Optional[bool] = False) -> np.ndarray:
        """The hidden states of texts, pooled by their "mean" or as the "last" one: (n, C), or (C)
        for one text. `progress`: as of score()."""
        if pool not in ("mean", "last"):
            raise InvalidValue("embed: pool is 'mean' or 'last', found %r" % pool)
        if _is_one(texts):
            return self._embed(self._ids(texts), pool)
        return np.stack(_progress.each(lambda t: self._embed(self._ids(t), pool), texts, "embed",
                                       progress))

    def _embed(self, ids: np.ndarray, pool: str) -> np.ndarray:
        if ids.ndim != 1 or not len(ids):
            raise ShapeError("embed: expected ids (T) with T from 1 on, found %s" % (ids.shape,))
        total = np.zeros(self._width(), np.float64)
        with self._lock:
            s = self.state()
            self._check_room(s, 1, len(ids))
            reader = self._reader(hidden=True)
            for at, end in self._pieces(s, len(ids)):
                self._run(reader, s, {"ids": ids[None, at:end]})
                hidden = self._result(reader, "hidden")[0]
                for row in hidden if pool == "mean" else hidden[-1:]:  # in order, however it is cut
                    total = total + row if pool == "mean" else row.astype(np.float64)
        return (total / len(ids) if pool == "mean" else total).astype(REAL)

    def grad(self, ids: Text, targets: Any = None) -> Gradients:
        """The mean loss on a text or on ids (T) or (B, T), and the gradient of every parameter.
        Each token is the target of the one before, unless targets are given; -1 does not count.

        >>> import dra
        >>> g = dra.load("dra-gru-tiny").grad("Once upon a time")
        >>> 5 < g.loss < 7, g["embedding"].shape
        (True, (256, 192))
        """
        rows = np.atleast_2d(self._ids(ids))
        B, T = rows.shape
        if targets is None:
            goal = np.full((B, T), -1, np.int32)
            goal[:, :-1] = rows[:, 1:]
        else:
            goal = np.atleast_2d(ids_of(targets, "targets"))
            if goal.shape != rows.shape:
                raise ShapeError("targets: expected %s, found %s" % (rows.shape, goal.shape))
            if goal.size and not (-1 <= int(goal.min()) and int(goal.max()) < self.vocab):
                raise OutOfRange("targets: expected -1 to %d" % (self.vocab - 1))
        if not (goal >= 0).any():
            raise InvalidValue("grad: nothing to learn from: no token is followed by one that "
                               "counts")
        with self._lock:
            self._check_room(self.state(B), B, T)
            config = _c.dra_gradients_config(model=self._open().at, device=self._device.at)
            learner = Handle(make(lib.dra_gradients_create, ctypes.byref(config)),
                             lib.dra_gradients_destroy, self._model, self._weights, self._device)
            call(lib.dra_gradients_bind, learner.at, self._weights.at)
            batch = _c.dra_microbatch(B=B, T=T, ids=address(rows), targets=address(goal),
                                      no_dropout=True)
            result = _c.dra_microbatch_result()
            call(lib.dra_gradients_run, learner.at, ctypes.byref(batch), ctypes.byref(result))
            out = Gradients()
            out.loss = result.loss
            parameters = self.parameters
            for i, name in enumerate(parameters):
                shape = parameters._find(name)[1]
                at = lib.dra_gradients_of(learner.at, i)
                if not at:
                    raise MemoryError("grad: no memory for the gradient of " + name)
                out[name] = view(at, shape, REAL, None).copy()
        if not math.isfinite(out.loss) or not all(np.isfinite(g).all() for g in out.values()):
            raise InvalidValue("grad: the loss is %g, or gradients are not finite" % out.loss)
        return out

    # -- writing

    def generate(self, prompt: Union[None, Text, Sequence[str]] = None, *, tokens: int = 128,
                 state: Optional[State] = None, **options: Any) -> Any:
        """Continues a prompt: a text for a text, ids for ids, a list for a list of texts. With a
        state, it reads and writes on from there, and without a prompt just writes; the state has
        then read both. Options are those of `dra.sampler_options()`, and

        seed (0), stop (texts that end it), grammar (GBNF), schema (a JSON schema, as an object or
        its text), ignore_end, logprobs (of that many tokens, with those of ids).

        >>> import dra
        >>> m = dra.load("dra-gru-tiny")
        >>> len(m.generate("Once upon a time", tokens=5, temperature=0, ignore_end=True)) > 0
        True
        >>> s = m.read("Once upon a time")
        >>> a, b = (m.generate(tokens=9, state=s.fork(), seed=1) for _ in range(2))
        >>> a == b
        True
        """
        if isinstance(prompt, (list, tuple)) and prompt and isinstance(prompt[0], str):
            if state is not None:
                return [self.generate(p, tokens=tokens, state=state.fork(), **options)
                        for p in prompt]
            return generation.generate_rows(self, list(prompt), tokens, options)
        return generation.generate(self, prompt, tokens, state, options)

    def stream(self, prompt: Optional[Text] = None, *, tokens: int = 128,
               state: Optional[State] = None, **options: Any) -> "generation.Stream":
        """The same token by token: an iterator of pieces of text (or of ids, where the prompt is
        ids). Leaving the loop leaves the state at what was handed out.

        >>> import dra
        >>> m = dra.load("dra-gru-tiny")
        >>> text = "".join(m.stream("Once", tokens=8, seed=3))
        >>> text == m.generate("Once", tokens=8, seed=3)
        True
        """
        return generation.Stream(self, prompt, tokens, state, options)

    def chat(self, messages: Union[str, Sequence[Mapping[str, str]]], *, tokens: int = 512,
             template: Optional[str] = None, **options: Any) -> str:
        """An answer to messages ({"role": ..., "content": ...}), or to one text of a user, by the
        chat template of the model's folder, else by "plain"; or by that of a file, or a named one
        such as "chatml"."""
        return generation.chat(self, messages, tokens, template, options)

    def tune_state(self, data: Any, *, start: Optional[State] = None,
                   callback: Optional[Callable[..., Any]] = None, **settings: Any) -> State:
        """Learns the state that texts start from, and nothing else: as `dra tune-state`. `data` is
        that of a Trainer, and so are settings: steps (300), lr (0.02), split (0.1: what is held
        out), batch, context, seed, eval_every, ... It starts from `start`, one that was learned
        before, or from the model's own. `callback` gets a `dra.training.TuneEvent` after each step;
        one that returns False ends it.

        >>> import dra, numpy as np
        >>> m = dra.load("dra-gru-tiny", set={"dim": 48, "depth": 1})
        >>> ids, losses = np.tile(np.arange(64, dtype=np.int32), 50), []
        >>> s = m.tune_state(ids, steps=4, batch=2, context=32,
        ...                  callback=lambda e: losses.append(e.eval_loss))
        >>> losses[-1] < losses[0], s.tokens
        (True, 0)
        """
        from . import training  # which uses this module
        return training.tune_state(self, data, start, callback, settings)

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

    # -- files

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
            model, weights = _load_folder(target)  # mapped files stay, also where they are removed
        return Model(model, weights, self._device, "%s, %s" % (self._title, words), folder,
                     self._tokenizer)


def _is_fresh(state: Optional[State]) -> bool:
    """Whether nothing was read before, so that a text begins there."""
    return state is None or state._logits is None


def _is_one(texts: Any) -> bool:
    """A text or ids, not a list of them."""
    return isinstance(texts, str) or (len(texts) > 0 and np.ndim(texts[0]) == 0 and
                                      not isinstance(texts[0], str))


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


