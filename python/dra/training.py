"""Training runs: an iterator of what happens."""
import ctypes
import html
import json
import math
import os
import signal
import tempfile
import threading
from typing import (Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Union)

import numpy as np

from . import _c, _progress, _report
from ._library import (Config, Handle, Lent, Path, call, ids_of, lib, make, no_pickle,
                       parse_config, path_bytes, preset_config)
from .errors import ClosedError, FileError, InvalidValue, ShapeError
from .model import Model, load
from .opening import open_device
from .state import State
from .tokenizer import Tokenizer

KINDS = ("step", "eval", "sample", "save")


class Event(NamedTuple):
    """Something that happened: `kind` is "step", "eval", "sample" or "save". What is not known is
    NaN."""
    kind: str
    step: int
    steps: int
    loss: float  #: of the step
    rate: float  #: the learning rate
    norm: float  #: of all gradients, before clipping
    eval_loss: float  #: of the last evaluation
    best_loss: float  #: of all of them
    tokens: int  #: of all steps so far
    seconds: float
    tokens_per_second: float
    skipped: int  #: steps whose loss or gradients were not finite
    measures: Dict[str, float]  #: accuracy, error, ...: of what is no text
    blend: float = math.nan  #: the share of the first of two memories


Data = Union[Path, Sequence[Path], np.ndarray]
Callback = Callable[[Event], Any]


class TuneEvent(NamedTuple):
    """A step of `m.tune_state()`; step 0: before the first."""
    step: int
    steps: int
    loss: float  #: of the step
    eval_loss: float  #: of what is held out; NaN: not measured at this step
    rate: float
    norm: float  #: of the gradient


def open_corpus(data: Data, words: Optional[Tokenizer], lent: Lent) -> Handle:
    """Files, or an array of ids."""
    if isinstance(data, np.ndarray):
        ids = ids_of(data, "data")
        if ids.ndim != 1:
            raise ShapeError("data: expected ids (N), found %s" % (ids.shape,))
        with tempfile.TemporaryDirectory(prefix="dra-") as room:
            path = os.path.join(room, "ids.npy")
            np.save(path, ids)
            return open_corpus(path, words, lent)  # which stays mapped
    files = [data] if isinstance(data, (str, os.PathLike)) else list(data)
    paths = lent.strings([path_bytes(p) for p in files])
    config = _c.dra_corpus_config(n=len(files), paths=paths,
                                  tokenizer=words._handle.at if words else None)
    no_progress = _c.FUNCTIONS["dra_corpus_open"]()[1][1]()
    at = make(lib.dra_corpus_open, ctypes.byref(config), no_progress, None)
    return Handle(at, lib.dra_corpus_close)


def tune_state(model: Model, data: Data, start: Optional[State],
               callback: Optional[Callable[[TuneEvent], Any]],
               settings: Mapping[str, Any]) -> State:
    """See Model.tune_state()."""
    m, train, lent = model._open(), _settings(settings, "tune_state"), Lent()
    words = None if isinstance(data, np.ndarray) else model.tokenizer
    corpus = open_corpus(data, words, lent)
    raised: List[BaseException] = []
    if start is not None:
        start._bind(model)
    with model._lock, model._as_folder() as folder, _Interrupt() as interrupt:
        def take(_: int, at: int) -> bool:
            e = _c.dra_tune_event.from_address(at)
            try:
                more = callback is None or callback(TuneEvent(
                    e.step, e.steps, e.loss, e.eval_loss, e.rate, e.norm)) is not False
            except BaseException as error:  # which C would lose
                raised.append(error)
                return False
            return more and not interrupt.came

        c = _c.dra_tune_config(device=model._device.at, model=m.at, weights=folder,
                               data=corpus.at, train=ctypes.pointer(train),
                               **({"from": start._at} if start is not None else {}))
        c.event = type(c.event)(take)
        at = make(lib.dra_tune_state, ctypes.byref(c))
    out = State(model, model._hold_states(at))
    if raised:
        raise raised[0]
    if interrupt.came:
        raise KeyboardInterrupt("tune_state: stopped")
    out._context(file=True)  # nothing was read, so nothing is known of what follows
    return out


class Trainer:
    """Trains a model in a folder: `model` is a preset's name, a config, or a folder to start from;
    `data` text or token files (docs/data.md), or an int32 array of ids. Settings are those of the
    command line: steps, batch, context, lr, warmup, optimizer, eval_every, save_every, seed, ...

    An iterator of `Event`s, of which each step has one. Callbacks are called with each of them; one
    that returns False ends the run. Ctrl-C ends it, too, with what was done saved; so does leaving
    a `with` block, or close(). `resume=True` goes on from the newest checkpoint, bit for bit.

    >>> import dra, numpy as np, tempfile
    >>> ids = np.tile(np.arange(64, dtype=np.int32), 50)
    >>> folder = tempfile.mkdtemp()
    >>> run = dra.Trainer("dra-gru-tiny", data=ids, out=folder, set={"dim": 48, "depth": 1},
    ...                   steps=4, batch=2, context=32)
    >>> [e.step for e in run if e.kind == "step"]
    [1, 2, 3, 4]
    >>> m = run.model()
    >>> longer = dra.Trainer(data=ids, out=folder, steps=6, resume=True)
    >>> [e.step for e in longer if e.kind == "step"]
    [5, 6]
    """

    def __init__(self, model: Union[None, Path, Mapping[str, Any]] = None, *, data: Data,
                 out: Path, eval_data: Optional[Data] = None, resume: bool = False,
                 force: bool = False, callbacks: Iterable[Callback] = (), device: str = "cpu",
                 threads: int = 0, tokenizer: Union[None, Path, Tokenizer] = None,
                 set: Optional[Mapping[str, Any]] = None, tensorboard: bool = False,
                 **settings: Any) -> None:
        self.folder = os.fspath(out)
        self.callbacks = list(callbacks)
        self._events: List[Event] = []
        self._more, self._stop, self._closed = True, False, False
        self._saved_step, self._step = -1, 0
        self._lock, self._lent = threading.RLock(), Lent()
        self._trainer: Optional[Handle] = None
        self._on_event = _c.FUNCTIONS["dra_trainer_step"]()[1][1](self._take)
        if model is None and not resume:
            raise InvalidValue("Trainer: expected a model: a preset, a config or a folder")
        if model is None and not os.path.isdir(os.path.join(self.folder, "train")):
            raise FileError(f"{self.folder}: expected a run to resume, found none")
        train = _settings(settings)
        config, start = self._config(self.folder if model is None else model, set or {})
        words = self._tokenizer(model, config, tokenizer, data)
        device_handle = open_device(device, threads)
        run = _c.dra_run_model_config(
            folder=path_bytes(out), model=config.at, train=ctypes.pointer(train),
            resume=resume, force=force, base=None if resume else start)
        built = Handle(make(lib.dra_run_model, ctypes.byref(run)), lib.dra_model_destroy)
        corpora = [None if d is None else open_corpus(d, words, self._lent)
                   for d in (data, eval_data)]
        trainer = _c.dra_trainer_config(
            folder=path_bytes(out), train=ctypes.pointer(train), device=device_handle.at,
            model=built.at, weights=None if resume else start,
            data=corpora[0] and corpora[0].at, eval_data=corpora[1] and corpora[1].at,
            tokenizer=words._handle.at if words else None, resume=resume, force=force,
            tensorboard=tensorboard)
        at = make(lib.dra_trainer_create, ctypes.byref(trainer))
        self._trainer = Handle(at, lib.dra_trainer_destroy, device_handle, built, *corpora,
                               words and words._handle, trainer, train, config)

    @classmethod
    def resume(cls, out: Path, *, data: Data, **settings: Any) -> "Trainer":
        """Goes on with the run in a folder; `steps` may be more than they were."""
        return cls(data=data, out=out, resume=True, **settings)

    # -- making one

    def _config(self, model: Union[Path, Mapping[str, Any]], settings: Mapping[str, Any]) -> Any:
        """The model's config, and where its first weights are, if anywhere."""
        start = None
        if isinstance(model, Mapping):
            c = parse_config(model)
        elif os.path.exists(model):
            start = path_bytes(model)
            c = Config(lib.dra_folder_config, start)
        else:
            return preset_config(os.fspath(model), settings), start
        for name, value in settings.items():
            c.set(name, value)
        return c, start

    def _tokenizer(self, model: Any, config: Any, given: Union[None, Path, Tokenizer],
                   data: Data) -> Optional[Tokenizer]:
        """The one given, whose vocabulary a preset takes; else that of the model; none for ids."""
        if given is not None:
            words = given if isinstance(given, Tokenizer) else Tokenizer(given)
            if model is not None and not isinstance(model, Mapping) and not os.path.exists(model):
                config.set("vocab", len(words))
            return words
        if isinstance(data, np.ndarray):
            return None
        folder = self.folder if model is None else model
        known = not isinstance(folder, Mapping) and os.path.exists(folder)
        at = make(lib.dra_tokenizer_open_folder, path_bytes(folder) if known else None,
                  config.at.contents.vocab)
        return Tokenizer(_handle=Handle(at, lib.dra_tokenizer_destroy))

    # -- running

    def _take(self, _: int, at: int) -> bool:
        """What the library tells, in the middle of a step."""
        e = _c.dra_event.from_address(at)
        names = [(_text(n), m) for n, m in zip(e.measure_name, e.measure) if n]
        self._step = e.step
        if e.kind == _c.DRA_EVENT_SAVE:
            self._saved_step = e.step
        self._events.append(Event(KINDS[e.kind], e.step, e.steps, e.loss, e.rate, e.norm,
                                  e.eval_loss, e.best_loss, e.tokens, e.seconds,
                                  e.tokens_per_second, e.skipped, dict(names), e.blend))
        return not self._stop

    def _halt(self) -> None:
        self._stop = True

    def _at(self) -> int:
        if self._closed or self._trainer is None:
            raise ClosedError("trainer: it is closed")
        return self._trainer.at

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        with self._lock:
            while not self._events:
                if not self._more:
                    self.close()  # another one may go on in the folder
                    raise StopIteration
                self._advance()
            event = self._events.pop(0)
        for callback in self.callbacks:
            if callback(event) is False:
                self.stop()
        return event

    def _advance(self) -> None:
        more = ctypes.c_bool()
        with _Interrupt(self._halt) as interrupt:
            try:
                call(lib.dra_trainer_step, self._at(), self._on_event, None, ctypes.byref(more))
                self._more = more.value
            except BaseException:
                self._more = False
                raise
        if interrupt.came:
            self._events.clear()
            self.close()
            raise KeyboardInterrupt("training was stopped after step %d, which is saved in %s" %
                                    (self._step, self.folder))

    def run(self, progress: Optional[bool] = None) -> Optional[Event]:
        """To the end; returns the last event. `progress` shows a bar, where tqdm is installed;
        None: if a person looks, at a terminal or in a notebook."""
        last, bar = None, None
        try:
            for last in self:
                if bar is None:
                    bar = _progress.bar(last.steps, "train", progress, "steps")
                    bar.update(last.step - 1)
                if last.kind == "step":
                    bar.update()
                    bar.set_postfix_str("loss %.4g" % last.loss)
        finally:
            if bar is not None:
                bar.close()
        return last

    def report(self) -> "_report.Report":
        """Its losses so far, from its log: text, and a curve in a notebook. `dra report` writes a
        page."""
        return _report.of_run(self.folder)

    def stop(self) -> None:
        """No further step is made; what was done is saved."""
        if self._more:
            self._more = False
            self.save()

    def save(self) -> None:
        """A checkpoint of now, unless there is one."""
        with self._lock:
            if self._step and self._saved_step != self._step:
                call(lib.dra_trainer_save, self._at())
                self._saved_step = self._step

    def evaluate(self) -> float:
        """The mean loss of the evaluation data as the weights are now."""
        loss = ctypes.c_double()
        with self._lock:
            call(lib.dra_trainer_evaluate, self._at(), ctypes.byref(loss))
        return loss.value

    def model(self, **options: Any) -> Model:
        """The model as it was saved last."""
        return load(self.folder, **options)

    def close(self) -> None:
        """Saves what was done since the last checkpoint, and lets go of the folder."""
        if self._closed or self._trainer is None:
            return
        try:
            self._more = False
            self.save()
        finally:
            self._closed, self._trainer, self._on_event = True, None, None

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise no_pickle("a trainer")

    def __repr__(self) -> str:
        return "<dra.Trainer in %s, step %d%s>" % (self.folder, self._step,
                                                   ", closed" if self._closed else "")

    def _repr_html_(self) -> str:
        try:
            return self.report()._repr_html_()
        except FileError:  # it has not begun
            return html.escape(repr(self))


def report(folder: Path) -> "_report.Report":
    """The losses of a run in a folder, also one that another process is making."""
    return _report.of_run(folder)


class _Interrupt:
    """Ctrl-C during a step: the step is finished and saved first."""

    def __init__(self, tell: Callable[[], None] = lambda: None) -> None:
        self._tell, self.came = tell, False
        self._before: Any = None

    def _note(self, *_: Any) -> None:
        self.came = True
        self._tell()

    def __enter__(self) -> "_Interrupt":
        if threading.current_thread() is threading.main_thread() and \
                signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


def _text(name: Any) -> str:
    return (name if isinstance(name, bytes) else ctypes.string_at(name)).decode()


def _settings(settings: Mapping[str, Any], what: str = "Trainer") -> "_c.dra_train_config":
    """Settings by the names of train/config.json."""
    for name, value in settings.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidValue("%s: %s is %g" % (what, name, value))
    words = dict(settings)
    context = words.pop("context", None)
    if context is not None:  # tokens of a row, or [(tokens, the step from which on), ...]
        rows = [(context, 0)] if isinstance(context, int) else context
        words["stage"] = [{"context": int(c), "from": int(f)} for c, f in rows]
    text = json.dumps(words).encode()
    out = _c.dra_train_config()
    call(lib.dra_train_config_parse, what.encode(), text, len(text), ctypes.byref(out))
    return out
