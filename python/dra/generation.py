"""Text from models: samplers, grammars, chats."""
import ctypes
import json
import operator
from typing import (TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple)

import numpy as np

from . import _c
from ._library import Handle, Lent, address, call, lib, make, path_bytes, text_bytes
from .errors import ClosedError, InvalidValue, ShapeError
from .state import State
from .tokenizer import Decoder, Tokenizer

if TYPE_CHECKING:
    from .model import Model
    from .reading import Text


class SamplerOption(NamedTuple):
    """An option of `generate` that acts on the logits."""
    name: str
    least: float
    most: float
    usual: float
    help: str


def sampler_options() -> List[SamplerOption]:
    """All of them, in the order in which they act.

    >>> import dra
    >>> [o.name for o in dra.sampler_options() if o.name.startswith("top")]
    ['top_k', 'top_p', 'top_a']
    """
    return [SamplerOption(o.name.decode(), o.least, o.most, o.usual, o.help.decode())
            for o in _rows()]


def _rows() -> List[Any]:
    n = ctypes.c_size_t()
    rows = lib.dra_sampler_options(ctypes.byref(n))
    return [rows[i] for i in range(n.value)]


OTHERS = ("seed", "stop", "grammar", "schema", "ignore_end", "bias")


class Plan:
    """Options of one call as C takes them; it keeps what that borrows."""

    def __init__(self, model: "Model", options: Mapping[str, Any],
                 ends: Sequence[int] = ()) -> None:
        rows = {o.name.decode(): o for o in _rows()}
        unknown = [k for k in options if k not in rows and k not in OTHERS]
        if unknown:
            raise TypeError("generate: no option %r; there are %s" %
                            (unknown[0], ", ".join([*rows, *OTHERS])))
        self._lent = Lent()
        self.sampler = self._usual(model, rows)
        for name, row in rows.items():
            if name in options:
                value = float(options[name])
                if row.whole and not value.is_integer():
                    raise InvalidValue("generate: %s is %g, expected a whole number" %
                                       (name, value))
                if not row.least <= value <= row.most:
                    raise InvalidValue("generate: %s is %g, expected %g to %g" %
                                       (name, value, row.least, row.most))
                lib.dra_sampler_set(ctypes.byref(self.sampler), ctypes.byref(row), value)
        self.sampler.seed = operator.index(options.get("seed", 0)) % 2**64
        self._add_bias(options.get("bias") or {})
        self.grammar = self._make_grammar(options.get("grammar"), options.get("schema"))
        stop = options.get("stop") or []
        texts = [text_bytes(s) for s in ([stop] if isinstance(stop, str) else stop)]
        if b"" in texts:
            raise InvalidValue("generate: stop: expected texts that are not empty")
        self.config = _c.dra_generate_config(
            n_stop=len(texts), stop=self._lent.strings(texts),
            ignore_end=bool(options.get("ignore_end", False)))
        if ends:
            array = self._lent.keep(np.array(ends, np.int32))
            self.config.n_ends, self.config.ends = len(array), address(array)

    @staticmethod
    def _usual(model: "Model", rows: Mapping[str, Any]) -> "_c.dra_sampler_config":
        """What the model's folder says, else what is usual."""
        if model._path is not None:
            habits = _c.dra_generation_config()
            call(lib.dra_generation_config_read, path_bytes(model._path), ctypes.byref(habits))
            if habits.given:
                return habits.sampler
        out = _c.dra_sampler_config()
        for row in rows.values():
            lib.dra_sampler_set(ctypes.byref(out), ctypes.byref(row), row.usual)
        return out

    def _add_bias(self, bias: Mapping[int, float]) -> None:
        rows = self._lent.keep((_c.dra_token_bias * len(bias))(
            *[_c.dra_token_bias(i, x) for i, x in bias.items()]))
        self.sampler.n_bias = len(bias)
        self.sampler.bias = rows

    def _make_grammar(self, text: Optional[str], schema: Any) -> Optional[Handle]:
        if text is not None and schema is not None:
            raise InvalidValue("generate: expected one of grammar and schema, found both")
        if text is None and schema is None:
            return None
        if schema is not None and not isinstance(schema, str):
            schema = json.dumps(schema)
        function = lib.dra_grammar_schema if text is None else lib.dra_grammar_parse
        data = text_bytes(schema if text is None else text)
        name = b"grammar" if schema is None else b"schema"
        return Handle(make(function, name, data, len(data)), lib.dra_grammar_destroy)


def _take_generator(model: "Model", rows: int, plan: Plan) -> Handle:
    """A generator that nobody uses now, drawing as planned."""
    free = model._generators.setdefault(rows, [])
    if free and plan.grammar is None:
        call(lib.dra_generator_set_sampler, free[-1].at, ctypes.byref(plan.sampler))
        return free.pop()
    tokenizer = model._tokenizer_or_none()
    config = _c.dra_generator_config(
        model=model._open().at, weights=model._weights.at, device=model._device.at,
        tokenizer=tokenizer._handle.at if tokenizer else None, sampler=plan.sampler, rows=rows,
        samples=1, grammar=plan.grammar.at if plan.grammar else None)
    at = make(lib.dra_generator_create, ctypes.byref(config))
    return Handle(at, lib.dra_generator_destroy, model._device, model._model, model._weights,
                  tokenizer._handle if tokenizer else None, plan)


def _give_generator(model: "Model", rows: int, generator: Handle, plan: Plan) -> None:
    for b in range(rows):
        call(lib.dra_generator_reset, generator.at, b)
    if plan.grammar is None and not model.closed:
        model._generators.setdefault(rows, []).append(generator)


class Writer:
    """Rows of a generator that write, a token of each at a time."""

    def __init__(self, model: "Model", states: Sequence[State], tokens: int, plan: Plan) -> None:
        tokens = operator.index(tokens)
        if tokens < 0:
            raise InvalidValue("generate: tokens is %d, expected 0 or more" % tokens)
        self.model, self.states, self.plan = model, states, plan
        self.rows = len(states)
        self.out = (_c.dra_generated * self.rows)()
        self.ids: List[List[int]] = [[] for _ in states]
        self.more = tokens > 0  # to C, 0 means any number
        self._generator: Optional[Handle] = None
        if not self.more:
            return
        with model._lock:
            generator = _take_generator(model, self.rows, plan)
            for b, state in enumerate(states):
                if state.batch != 1:
                    raise ShapeError("generate: a state of one sequence, found %d" % state.batch)
                state.logits  # it has read something
                context = state._context()
                call(lib.dra_generator_back, generator.at, b, ctypes.byref(context))
            plan.config.tokens = tokens
            call(lib.dra_generate_start, generator.at, ctypes.byref(plan.config))
            self._generator = generator

    def step(self) -> List[List[int]]:
        """One more token of each row that writes; returns those that are new, row by row."""
        if not self.more or self._generator is None:
            return [[] for _ in self.states]
        more = ctypes.c_bool()
        with self.model._lock:
            self.model._open()
            call(lib.dra_generate_step, self._generator.at, self.out, ctypes.byref(more))
            new = []
            for ids, out in zip(self.ids, self.out):
                more_ids, at = out.n - len(ids), (out.ids or 0) + 4 * len(ids)
                fresh = list((ctypes.c_int32 * more_ids).from_address(at)) if more_ids else []
                ids += fresh
                new.append(fresh)
            self.more = more.value
            if not self.more:
                self._finish()
        return new

    def _finish(self) -> None:
        """The states become those after what was written."""
        generator = self._generator
        assert generator is not None
        lib.dra_generate_stop(generator.at)
        for b, state in enumerate(self.states):
            context = _c.dra_context()
            call(lib.dra_generator_keep, generator.at, b, ctypes.byref(context))
            try:
                state._adopt(context)
            finally:
                lib.dra_context_free(ctypes.byref(context))
        self._generator = None
        _give_generator(self.model, self.rows, generator, self.plan)

    def stop(self, handed: Sequence[int]) -> None:
        """Gives up; each state has then read `handed` tokens of its row."""
        generator, self._generator, self.more = self._generator, None, False
        if generator is None:
            return
        with self.model._lock:
            lib.dra_generate_stop(generator.at)
            _give_generator(self.model, self.rows, generator, self.plan)
            if self.model.closed:
                return
            for state, ids, n in zip(self.states, self.ids, handed):
                for token in ids[:n]:  # one by one, as they were written
                    self.model.read([token], state)


def _begin(model: "Model", prompt: Any, state: Optional[State], plain: bool = False) -> State:
    model._open()
    if model._whole or set(model._reads) != {"ids"}:
        raise InvalidValue("generate: the model does not write from left to right")
    if prompt is None and state is None:
        raise InvalidValue("generate: expected a prompt, a state that has read something, or both")
    if state is None:
        state = model.state()
    state._bind(model)
    if prompt is not None:
        ids = model._ids(prompt, "prompt", begin=state._logits is None and not plain)
        if ids.ndim != 1:
            raise ShapeError("prompt: expected ids (T), found %s" % (ids.shape,))
        if len(ids):
            model.read(ids, state)
    if state._logits is None:
        raise InvalidValue("generate: the prompt is empty and nothing was read before")
    return state


class Stream:
    """What a model writes, as it comes. `ids` are the tokens so far, `finish` says how it ended:
    "end", "stop", "length", ...; None as long as it goes on."""

    def __init__(self, model: "Model", prompt: Optional["Text"], tokens: int,
                 state: Optional[State], options: Mapping[str, Any],
                 ends: Sequence[int] = (), plain: bool = False) -> None:
        self._texts = prompt is None or isinstance(prompt, str)
        self._ours = state is None
        plan = Plan(model, options, ends)
        self.state = _begin(model, prompt, state, plain)
        self._decoder = Decoder(model.tokenizer) if self._texts else None
        self._handed = 0
        self._ready: List[Any] = []
        self._ended = False
        self._writer = Writer(model, [self.state], tokens, plan)

    @property
    def ids(self) -> List[int]:
        return self._writer.ids[0][:self._handed]

    @property
    def finish(self) -> Optional[str]:
        finish = self._writer.out[0].finish
        if self._writer.more or not self._ended or finish >= _c.DRA_FINISH_COUNT:
            return None
        return lib.dra_finish_name(finish).decode()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while not self._ready:
            if self._ended:
                raise StopIteration
            new = self._writer.step()[0]
            if self._decoder is None:
                self._ready = list(new)
            else:
                text = "".join([self._decoder.push(i) for i in new])
                if not self._writer.more:
                    text += self._decoder.flush()
                self._ready = [text] if text else []
                self._handed = len(self._writer.ids[0])
            self._ended = not self._writer.more
        if self._decoder is None:
            self._handed += 1
        return self._ready.pop(0)

    def close(self) -> None:
        """Ends it here; the state has read what was handed out."""
        if not self._ended:
            self._ended = True
            self._writer.stop([0 if self._ours else self._handed])

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_writer", None) is not None:
            try:
                self.close()
            except (ClosedError, ImportError, TypeError):
                pass  # the model, or the interpreter, has gone before

    def __reduce__(self) -> Any:
        raise TypeError("a stream cannot be pickled")


def generate(model: "Model", prompt: Any, tokens: int, state: Optional[State],
             options: Mapping[str, Any], ends: Sequence[int] = (), plain: bool = False) -> Any:
    stream = Stream(model, prompt, tokens, state, options, ends, plain)
    if stream._texts:
        return "".join(stream)
    return np.array(list(stream), np.int32)


def generate_rows(model: "Model", prompts: List[str], tokens: int,
                  options: Mapping[str, Any]) -> List[str]:
    """Each as it would be alone, in steps that all share."""
    plan = Plan(model, options)
    writer = Writer(model, [_begin(model, p, None) for p in prompts], tokens, plan)
    try:
        while writer.more:
            writer.step()
    finally:
        writer.stop([0] * len(prompts))
    return [model.tokenizer.decode(ids) for ids in writer.ids]


# ---- chats ---------------------------------------------------------------------------------------


class Template:
    """A chat template of a file, or a named one, or that of a folder, else the plain one."""

    def __init__(self, model: "Model", source: Optional[str]) -> None:
        folder = path_bytes(model._path) if model._path is not None else None
        at = make(lib.dra_template_open, folder, path_bytes(source) if source else None)
        if not at:  # as `dra serve` does it
            at = make(lib.dra_template_open, folder, b"plain")
        self._handle = Handle(at, lib.dra_template_destroy)

    def render(self, messages: Sequence[Mapping[str, str]], answer: bool) -> str:
        rows = (_c.dra_message * len(messages))()
        for row, m in zip(rows, messages):
            if not isinstance(m, Mapping) or "role" not in m or "content" not in m:
                raise InvalidValue("chat: a message is {'role': ..., 'content': ...}, found %r" % m)
            if not isinstance(m["content"], str):
                raise TypeError("chat: expected a text as content, found %s" %
                                type(m["content"]).__name__)
            content = text_bytes(m["content"])
            row.role, row.content, row.bytes = text_bytes(m["role"]), content, len(content)
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        call(lib.dra_template_chat, self._handle.at, rows, len(messages), answer,
             ctypes.byref(text), ctypes.byref(size))
        try:
            return ctypes.string_at(text, size.value).decode("utf-8", "replace")
        finally:
            _free(text)

    def ending(self, tokenizer: Tokenizer) -> Tuple[Optional[int], Optional[str]]:
        """How answers end: by a token, else by a text; by neither where it does not render a usual
        conversation."""
        token, text = ctypes.c_int32(), ctypes.c_void_p()
        try:
            call(lib.dra_template_ending, self._handle.at, tokenizer._handle.at,
                 ctypes.byref(token), ctypes.byref(text))
        except InvalidValue:
            return None, None
        try:
            return (token.value if token.value >= 0 else None,
                    ctypes.string_at(text).decode("utf-8", "replace") if text else None)
        finally:
            _free(text)

    def token(self, name: str) -> Optional[str]:
        found = lib.dra_template_token(self._handle.at, name.encode())
        return found.decode() if found else None


def _free(address: ctypes.c_void_p) -> None:
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(address)


def chat(model: "Model", messages: Any, tokens: int, template: Optional[str],
         options: Mapping[str, Any]) -> str:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    form = Template(model, template)
    asked: Dict[str, Any] = dict(options)
    stop = asked.get("stop") or []
    asked["stop"] = [stop] if isinstance(stop, str) else list(stop)
    end, ending = form.ending(model.tokenizer)
    eos = form.token("eos_token")
    ends = [i for i in (end, model.tokenizer.id(eos) if eos else None) if i is not None]
    if ending:
        asked["stop"].append(ending)
    # A template writes the tokens that begin a text itself.
    return generate(model, form.render(messages, True), tokens, asked.pop("state", None), asked,
                    ends, plain=True)
