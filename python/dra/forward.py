"""Inputs by name, for models that read other things than one text, and maps of attention."""
import ctypes
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _c
from ._library import REAL, Handle, Lent, address, as_array, call, ids_of, lib, make
from .errors import DTypeError, InvalidValue, OutOfRange, ShapeError, UnknownName
from .state import State

if TYPE_CHECKING:
    from .model import Model


class Outputs(Dict[str, np.ndarray]):
    """What a model makes of its inputs, by name: "logits" of tokens (B, T, V) or of classes
    (B, classes), "out", "numbers", "hidden". `state` was advanced, `attentions` are maps."""

    state: State
    attentions: Dict[str, np.ndarray]


class Input(NamedTuple):
    """An input of a model; -1 in the shape of a row: any number of tokens."""
    name: str
    names: Tuple[str, ...]  #: and what it is called besides
    shape: Tuple[int, ...]
    vocab: int  #: of tokens; 0: real numbers
    length: int  #: tokens that it stands for; 0: as many as it has rows, or none, see `whole`
    context: bool
    whole: bool  #: it has no axis of tokens
    numbers: int  #: of xVal: the token that has numbers; -1: it is no such input
    picture: bool


# ---- what a model reads --------------------------------------------------------------------------

def inputs_of(model: int) -> List[Input]:
    """The inputs of a model, those of its own text first."""
    out: List[Input] = []
    row = _c.dra_model_input()
    while lib.dra_model_input_at(model, len(out), ctypes.byref(row)):
        source = lib.dra_model_config_of(row.model).contents.source
        tokens = row.kind == _c.DRA_SOURCE_TOKENS and not row.condition
        picture = row.kind == _c.DRA_SOURCE_IMAGE
        ids = tokens and not row.numbers
        if row.condition:
            shape: Tuple[int, ...] = (row.width,)
        elif tokens:
            shape = (-1,)
        elif picture:
            shape = (source.channels, source.size, source.size)
        else:
            shape = (row.length or -1, row.width)
        name = row.name.decode()
        target = (ids and not row.context and not row.prepended and
                  bool(lib.dra_model_context_stack(model)))
        out.append(Input(name, (name, "tgt") if target else (name,), shape,
                         row.vocab if ids else 0, row.length, row.context, row.condition,
                         source.number_token if row.numbers else -1, picture))
    return out


def _mask_names(inputs: List[Input]) -> Dict[str, Tuple[str, ...]]:
    """What masks of the own text and of the context are called, as x-transformers has it."""
    source = [i.name for i in inputs if i.context and not i.whole]
    src = bool(source) and source[0] == "src"
    return {"own": ("tgt_mask",) if src else ("mask",),
            "context": ("src_mask", "mask") if src else ("context_mask",) if source else ()}


def _one_of(names: Sequence[str], given: Mapping[str, Any]) -> Optional[str]:
    """By which of its names something is given."""
    found = [n for n in names if n in given]
    if len(found) > 1:
        raise InvalidValue("inputs: expected one of %s" % " and ".join(found))
    return found[0] if found else None


class Reading:
    """Inputs of one call, checked, as the library takes them."""

    def __init__(self, model: "Model", given: Mapping[str, Any], reads_context: bool) -> None:
        self.inputs = inputs_of(model._open().at)
        self.masks = _mask_names(self.inputs)
        self._check_names(given, reads_context)
        self.arrays: Dict[str, np.ndarray] = {}
        self.B, self.tokens = -1, {"own": 0, "context": 0}
        self.ahead = {"own": 0, "context": 0}  # tokens that stand before those of a mask
        for i in self.inputs:
            if i.context and not reads_context:
                continue
            found = _one_of(i.names, given)
            if found is None:
                raise UnknownName("inputs: %s is missing: the model reads %s" %
                                  (i.name, self._describe()))
            self._add(i, given[found])
        self.marks = {side: self._mark(given, side) for side in ("own", "context")}
        self._add_resets(given)

    def _describe(self) -> str:
        return ", ".join("%s (%s)" % (" or ".join(i.names), ", ".join(
            ["B", *("T" if n < 0 else str(n) for n in i.shape)])) for i in self.inputs)

    def _check_names(self, given: Mapping[str, Any], reads_context: bool) -> None:
        known = {n for i in self.inputs if reads_context or not i.context for n in i.names}
        known |= {*self.masks["own"], "reset"}
        known |= set(self.masks["context"]) if reads_context else set()
        for name in given:
            if name not in known:
                raise UnknownName("inputs: %s is no input here: the model reads %s" %
                                  (name, self._describe()))

    def _add(self, i: Input, value: Any) -> None:
        what = "inputs: " + i.name
        if i.vocab:
            array = ids_of(value, what)
        else:
            array = np.ascontiguousarray(as_array(value, what))
            if array.dtype != REAL:
                raise DTypeError("%s: expected %s, found %s" % (what, REAL, array.dtype))
        same = array.ndim == len(i.shape) + 1 and all(
            n == m or (m < 0 and n > 0) for n, m in zip(array.shape[1:], i.shape))
        if not same or (self.B >= 0 and len(array) != self.B):
            raise ShapeError("%s: expected (%s), found %s" % (what, ", ".join(
                ["B" if self.B < 0 else str(self.B), *("T" if n < 0 else str(n)
                                                       for n in i.shape)]), array.shape))
        self._check_values(i, array, what)
        side = "context" if i.context else "own"
        if not i.whole and i.numbers < 0:
            self.tokens[side] += i.length or array.shape[1]
            if i.length and not i.picture:
                self.ahead[side] += i.length
        self.B = len(array)
        self.arrays[i.name] = array

    def _check_values(self, i: Input, array: np.ndarray, what: str) -> None:
        if i.vocab:
            if array.size and not (0 <= int(array.min()) and int(array.max()) < i.vocab):
                raise OutOfRange("%s: expected 0 to %d, found %d" % (
                    what, i.vocab - 1, array.max() if array.min() >= 0 else array.min()))
            return
        looked = array
        if i.numbers >= 0:  # only those of number tokens count
            ids = self.arrays[list(self.arrays)[-1]]
            if ids.shape != array.shape:
                raise ShapeError("%s: expected %s, found %s" % (what, ids.shape, array.shape))
            looked = array[ids == i.numbers]
        if not np.isfinite(looked).all():
            raise InvalidValue("%s: expected finite numbers, found NaN or infinity" % what)

    def _per_token(self, value: Any, name: str, n: int) -> np.ndarray:
        array = as_array(np.array(value) if isinstance(value, (list, tuple)) else value, name)
        if array.dtype.kind not in "biu":
            raise DTypeError("inputs: %s: expected bool or whole numbers, found %s" %
                             (name, array.dtype))
        if array.shape != (self.B, n):
            raise ShapeError("inputs: %s: expected %s, found %s" % (name, (self.B, n), array.shape))
        return array != 0

    def _mark(self, given: Mapping[str, Any], side: str) -> Optional[np.ndarray]:
        found = _one_of(self.masks[side], given)
        if found is None:
            return None
        n = self.tokens[side]
        out = np.zeros((self.B, n), np.int32)
        seen = self._per_token(given[found], found, n - self.ahead[side])
        out[:, self.ahead[side]:][~seen] = _c.DRA_MARK_PAD
        return out

    def _add_resets(self, given: Mapping[str, Any]) -> None:
        if "reset" not in given:
            return
        n = self.tokens["own"]
        marks = self.marks["own"]
        if marks is None:
            marks = self.marks["own"] = np.zeros((self.B, n), np.int32)
        resets = self._per_token(given["reset"], "reset", n - self.ahead["own"])
        marks[:, self.ahead["own"]:][resets] |= _c.DRA_MARK_RESET

    def own_ids(self) -> Optional[np.ndarray]:
        """The tokens of the own text, pads replaced by the last token before them."""
        rows = [i for i in self.inputs if i.vocab and not i.context and i.name in self.arrays]
        if not rows:
            return None
        ids = self.arrays[rows[-1].name]
        marks = self.marks["own"]
        if marks is None:
            return ids
        return np.take_along_axis(ids, self.last_real()[:, -ids.shape[1]:] - self.ahead["own"], 1)

    def last_real(self) -> np.ndarray:
        """The number of the last token that is no pad, up to each token; 0 where there is none."""
        n = self.tokens["own"]
        marks = self.marks["own"]
        at = np.broadcast_to(np.arange(n), (self.B, n))
        if marks is None:
            return at
        real = (marks & _c.DRA_MARK_PAD) == 0
        first = np.where(real.any(1), real.argmax(1), 0)[:, None]
        return np.maximum(np.maximum.accumulate(np.where(real, at, 0), 1), first)

    def run(self, reader: Handle, state: State) -> None:
        named = (_c.dra_named * len(self.arrays))()
        lent = Lent()
        for row, (name, array) in zip(named, self.arrays.items()):
            dense = lent.keep(np.ascontiguousarray(array))
            row.name, row.data, row.bytes = name.encode(), address(dense), dense.nbytes
        own, context = (None if m is None else address(lent.keep(m))
                        for m in (self.marks["own"], self.marks["context"]))
        text = _c.dra_context_text(T=self.tokens["context"], mark=context)
        call(lib.dra_reader_read_context, reader.at, state._at,
             ctypes.byref(text) if self.tokens["context"] else None, self.tokens["own"], own,
             len(named), named)


def _has_context(state: State) -> bool:
    return lib.dra_states_context(state._at, 0) >= 0


def forward(model: "Model", given: Mapping[str, Any], state: Optional[State],
            attentions: bool) -> Outputs:
    """See Model.forward()."""
    m = model._open().at
    config = lib.dra_model_config_of(m).contents
    context = lib.dra_model_context_stack(m)
    if state is not None:
        model._state_for([[0]], state)
    inputs = inputs_of(m)
    named = any(i.context and n in given for i in inputs for n in i.names)
    reading = Reading(model, given,
                      bool(context) and (named or state is None or not _has_context(state)))
    state = model.state(reading.B) if state is None else state
    if state.batch != reading.B:
        raise ShapeError("inputs: %d rows, the state has %d" % (reading.B, state.batch))
    tokens = config.head.kind == _c.DRA_HEAD_TOKENS
    if attentions:
        check_maps(model)
    with model._lock:
        call(lib.dra_model_check_positions, m, state.tokens, reading.tokens["own"])
        if reading.tokens["context"]:
            call(lib.dra_model_check_positions, context, 0,
                 reading.tokens["context"] - reading.ahead["context"])
        reader = model._reader(hidden=True, **({"logits": True} if tokens else {}),
                               **({"outs": True} if not tokens or config.head.numbers else {}),
                               **(MAPS if attentions else {}))
        reading.run(reader, state)
        out = Outputs()
        for name in ("logits", "out", "numbers", "hidden"):
            if lib.dra_reader_result_shape(reader.at, name.encode(), ctypes.byref(_c.dra_shape())):
                out[name] = model._result(reader, name).copy()
        out.attentions = maps_of(model, reader) if attentions else {}
        if tokens and not model._whole:
            _note(state, reading, out["logits"])
    out.state = state
    return out


def _note(state: State, reading: Reading, logits: np.ndarray) -> None:
    """What follows in each row, after its last token that is no pad."""
    ids = reading.own_ids()
    if ids is None:
        return
    last = reading.last_real()[:, -1] - (reading.tokens["own"] - logits.shape[1])
    state._note(ids, logits[np.arange(len(logits)), last])


# ---- maps ----------------------------------------------------------------------------------------

#: Outputs of a reader for maps: by the scores is known which columns are spare.
MAPS = {"maps": True, "scores": True}

_SEEN = -5e29  # scores where a token does not look are -1e30


def maps_model(model: "Model") -> Handle:
    """The same model made to show its maps; weights and states are the same."""
    config = ctypes.POINTER(_c.dra_model_config)()
    call(lib.dra_model_config_copy, lib.dra_model_config_of(model._open().at),
         ctypes.byref(config))
    try:
        config.contents.maps = True
        return Handle(make(lib.dra_model_create, config), lib.dra_model_destroy)
    finally:
        lib.dra_model_config_destroy(config)


def check_maps(model: "Model") -> None:
    """Refuses a model that has no maps, before a state is advanced."""
    m = model._open().at
    own = any(lib.dra_mixer_mappable(lib.dra_model_mixer(m, i))
              for i in range(lib.dra_model_attentions(m)))
    if not own and not any(i.context for i in inputs_of(m)):  # attention over a context has some
        raise InvalidValue("attentions: the model has none")


def maps_of(model: "Model", reader: Handle) -> Dict[str, np.ndarray]:
    """Maps of the last read, by names as "layers.0.attention": without the columns that no token
    may look at, which are room for further tokens."""
    out: Dict[str, np.ndarray] = {}
    shape = _c.dra_shape()
    kinds = [k for k in range(_c.DRA_SHOW_COUNT) if k != _c.DRA_SHOW_SCORES]
    for layer in range(lib.dra_model_layers(model._open().at)):
        for part in ("", "a.", "b.", "cross."):
            for kind in kinds:
                stem = "layers.%d.%s" % (layer, part)
                name = stem + lib.dra_show_name(kind).decode()
                if not lib.dra_reader_result_shape(reader.at, name.encode(), ctypes.byref(shape)):
                    continue
                x = model._result(reader, name)
                if kind == _c.DRA_SHOW_ATTENTION:
                    x = x[..., _seen_columns(model, reader, stem, x.shape[-1])]
                out[name] = x.copy()
    if not out:
        raise InvalidValue("attentions: the model has none")
    return out


def _seen_columns(model: "Model", reader: Handle, stem: str, width: int) -> np.ndarray:
    shape = _c.dra_shape()
    name = stem + lib.dra_show_name(_c.DRA_SHOW_SCORES).decode()
    if not lib.dra_reader_result_shape(reader.at, name.encode(), ctypes.byref(shape)):
        return np.ones(width, bool)
    scores = model._result(reader, name)
    if scores.shape[-1] != width:
        return np.ones(width, bool)
    return (scores > _SEEN).reshape(-1, width).any(0)
