"""Models: loaded, asked, closed."""
import ctypes
import html
import json
import os
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from . import _c, _report, generation
from ._library import Handle, Path, call, lib, make, no_pickle, path_bytes
from .errors import ClosedError, FileError, InvalidValue
from .opening import from_config, load_folder, nearest_preset, open_device, presets
from .parameters import Parameters
from .questions import Questions
from .reading import Text
from .saving import Saving
from .state import State
from .tokenizer import Tokenizer


def load(source: Union[Path, Mapping[str, Any]], device: str = "cpu", *, threads: int = 0,
         dtype: str = "f32", seed: int = 0, set: Optional[Mapping[str, Any]] = None,
         tokenizer: Union[None, Path, Tokenizer] = None, cache: str = "f32") -> "Model":
    """A model from a folder or a file (safetensors with its config, GGUF, rwkv.cpp); or, with
    weights drawn from `seed`, of a preset's name or of a config like those in config.json.

    `device` is "cpu", or "cuda" and "cuda:1" where the plugin is; `threads` 0 means one for each
    processor. With `dtype` "bf16", weights of products are halved in size, with `cache` "bf16" the
    keys and values that attention keeps. `set` changes keys of a preset or config by their dotted
    names.

    >>> import dra
    >>> m = dra.load("dra-delta-tiny", seed=1, set={"depth": 2})
    >>> m.config["depth"], m.tokenizer
    (2, <dra.Tokenizer of 256 tokens>)
    """
    for name, choice in (("dtype", dtype), ("cache", cache)):
        if choice not in ("f32", "bf16"):
            raise InvalidValue("load: %s is 'f32' or 'bf16', found %r" % (name, choice))
    if not isinstance(source, Mapping) and os.path.exists(source):
        if set:
            raise InvalidValue("load: a folder's config is what it is; set= is for presets")
        folder: Optional[Path] = source
        model, weights = load_folder(source, cache == "bf16")
    else:
        if not isinstance(source, Mapping) and os.fspath(source) not in presets():
            raise FileError("%s: no such folder, file or preset%s; models are not downloaded" %
                            (os.fspath(source), nearest_preset(os.fspath(source))))
        folder = None
        model = from_config(source if isinstance(source, Mapping) else os.fspath(source),
                             set or {}, cache == "bf16")
        weights = Handle(make(lib.dra_weights_draw, model.at, seed), lib.dra_weights_destroy, model)
    if dtype == "bf16":
        call(lib.dra_weights_to_bf16, weights.at)
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        tokenizer = Tokenizer(tokenizer)
    title = "config" if isinstance(source, Mapping) else os.path.basename(
        os.path.normpath(os.fspath(source)))
    return Model(model, weights, open_device(device, threads), title, folder, tokenizer)


class Model(Questions, Saving):
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
