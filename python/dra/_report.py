"""What there is to see of models, states and runs: as text, and as tables in notebooks."""
import ctypes
import html
import json
import math
import os
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _c
from ._library import Path, address, call, lib
from .errors import FileError

if TYPE_CHECKING:
    from .model import Model
    from .state import State


class Decay(NamedTuple):
    """How fast a memory forgets: the share that it keeps in one step, and the steps after which
    half of it is left. -1: it has no head, unit or channel of its own."""
    layer: int
    memory: str
    param: str
    head: int
    unit: int
    channel: int
    gamma: float
    half_life: float
    by_data: bool  #: every token has its own; this is the one where the input is 0


class Table(NamedTuple):
    columns: Tuple[str, ...]
    rows: List[Tuple[Any, ...]]


class Report:
    """A title, tables, and a picture where there is one. `str()` is text; notebooks show it."""

    def __init__(self, title: str, tables: Sequence[Table], picture: str = "") -> None:
        self.title, self.tables, self.picture = title, list(tables), picture

    def __str__(self) -> str:
        return "\n\n".join([self.title, *(_text(t) for t in self.tables if t.rows)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tables = "".join("<table><tr>%s</tr>%s</table>" % (
            "".join("<th>%s</th>" % html.escape(c) for c in t.columns),
            "".join("<tr>%s</tr>" % "".join("<td>%s</td>" % html.escape(_cell(x)) for x in row)
                    for row in t.rows)) for t in self.tables if t.rows)
        return "<b>%s</b>%s%s" % (html.escape(self.title), self.picture, tables)


def _cell(x: Any) -> str:
    return "%.6g" % x if isinstance(x, float) else format(x, ",") if isinstance(x, int) else str(x)


def _text(table: Table) -> str:
    rows = [table.columns, *([_cell(x) for x in row] for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    numbers = [isinstance(x, (int, float)) for x in table.rows[0]]
    return "\n".join("  ".join(x.rjust(w) if n else x.ljust(w)
                               for x, w, n in zip(row, widths, numbers)).rstrip() for row in rows)


# ---- models --------------------------------------------------------------------------------------

#: Parts of a model by what is in the names of their parameters.
_PARTS = (("mixers", (".mixer.", ".cross.")), ("feed-forwards", (".ff.",)))


def _part(name: str) -> str:
    for part, words in _PARTS:
        if any(w in name for w in words):
            return part
    return name if "." not in name else "other"


def _parameters(model: "Model") -> Table:
    sizes: Dict[str, int] = {}
    for name in model.parameters:
        part = _part(name)
        shape = model.parameters._find(name)[1]
        sizes[part] = sizes.get(part, 0) + int(np.prod(shape, dtype=np.int64))
    total = max(sum(sizes.values()), 1)
    return Table(("part", "parameters", "share"), [
        (part, n, "%.1f %%" % (100 * n / total)) for part, n in sizes.items()])


def _state_bytes(model: "Model") -> Table:
    kinds = {"a sequence": 0, "each token": 0, "its windows, when full": 0,
             "each token of its context": 0}
    size = np.dtype(_c.dra_real).itemsize
    for i in range(lib.dra_specs_count(model._state_specs)):
        spec = lib.dra_specs_at(model._state_specs, i).contents
        n = int(np.prod(spec.shape.dim[:spec.shape.rank], dtype=np.int64)) * size
        kind = ("each token of its context" if spec.context else "a sequence" if not spec.items
                else "its windows, when full" if spec.limit else "each token")
        kinds[kind] += n * (spec.limit if spec.items and spec.limit else 1)
    return Table(("state of", "bytes"), [(k, n) for k, n in kinds.items() if n])


def decays(model: "Model") -> List[Decay]:
    """The decays of all layers, with the weights as they are."""
    m, out = model._open().at, []
    for i in range(lib.dra_model_attentions(m)):
        config = lib.dra_mixer_config_of(lib.dra_model_mixer(m, i))
        specs = lib.dra_mixer_module(lib.dra_model_mixer(m, i)).contents.params
        layer = lib.dra_model_attention_params(m, i)
        held = [model.parameters["layers.%d.mixer.%s" % (
            layer, lib.dra_specs_at(specs, k).contents.name.decode())]
            for k in range(lib.dra_specs_count(specs))]
        values = (ctypes.c_void_p * (len(held) + 1))(*[address(x) for x in held])
        count = ctypes.c_size_t()
        call(lib.dra_mixer_gammas, config, values, 0, None, ctypes.byref(count))
        rows = (_c.dra_gamma_row * count.value)()
        call(lib.dra_mixer_gammas, config, values, len(rows), rows, ctypes.byref(count))
        out += [Decay(r.layer, r.memory.decode(), r.param.decode(), r.head, r.unit, r.channel,
                      r.gamma, r.half_life, bool(r.by_data)) for r in rows]
    return out


def _decay_table(rows: Sequence[Decay]) -> Table:
    """One row for each memory of a layer: the shortest, middle and longest half-life."""
    by: Dict[Tuple[int, str, str], List[float]] = {}
    for d in rows:
        by.setdefault((d.layer, d.memory, d.param), []).append(d.half_life)
    return Table(("layer", "memory", "decay", "decays", "half-life from", "median", "to"), [
        (*key, len(x), min(x), sorted(x)[(len(x) - 1) // 2], max(x)) for key, x in by.items()])


def of_model(model: "Model") -> Report:
    return Report(repr(model).strip("<>"), [_parameters(model), _state_bytes(model),
                                            _decay_table(decays(model))])


# ---- states --------------------------------------------------------------------------------------

def of_state(state: "State") -> Report:
    rows = [(name, str(x.shape), float(np.linalg.norm(x)), float(np.abs(x).max(initial=0)))
            for name, x in ((name, state[name]) for name in state)]
    return Report(repr(state).strip("<>"), [Table(("tensor", "shape", "norm", "largest"), rows)])


# ---- runs ----------------------------------------------------------------------------------------

def _read_log(folder: str) -> List[Dict[str, Any]]:
    path = os.path.join(folder, "log.jsonl")
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            lines = f.read().split("\n")
    except OSError as e:
        raise FileError("%s: expected the log of a run: %s" % (path, e.strerror)) from None
    rows = []
    for line in lines[:-1]:  # the last one may be on its way
        row = _object(line)
        if row is None:
            raise FileError("%s: expected lines of JSON, found %.40r" % (path, line))
        rows.append(row)
    return rows


def _object(line: str) -> Optional[Dict[str, Any]]:
    """An object of JSON; None: it is none."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _points(rows: Sequence[Dict[str, Any]], key: str, most: int = 400) -> List[Tuple[float, float]]:
    """Step and value, as means of neighbours where there are many."""
    found = [(r["step"], r[key]) for r in rows if isinstance(r.get(key), (int, float)) and
             isinstance(r.get("step"), int) and math.isfinite(r[key])]
    each = -(-len(found) // most) or 1
    return [(float(np.mean([s for s, _ in part])), float(np.mean([x for _, x in part])))
            for part in (found[i:i + each] for i in range(0, len(found), each))]


_COLOURS = ("#1f77b4", "#d62728")


def _picture(curves: Dict[str, List[Tuple[float, float]]]) -> str:
    """Curves as SVG, 480 by 200, with the numbers of their ends."""
    points = [p for c in curves.values() for p in c]
    if len(points) < 2:
        return ""
    steps, values = zip(*points)
    left, low = min(steps), min(values)
    wide, high = (max(steps) - left) or 1, (max(values) - low) or 1
    out = ['<svg viewBox="0 0 480 200" width="480" height="200" font-size="11" '
           'font-family="sans-serif" xmlns="http://www.w3.org/2000/svg">']
    for colour, (name, curve) in zip(_COLOURS, curves.items()):
        at = " ".join("%.1f,%.1f" % (50 + 420 * (s - left) / wide, 180 - 160 * (x - low) / high)
                      for s, x in curve)
        out.append('<polyline points="%s" fill="none" stroke="%s"><title>%s</title></polyline>' %
                   (at, colour, html.escape(name)))
    for text, x, y in (("%.3g" % max(values), 2, 24), ("%.3g" % low, 2, 184),
                       ("%g" % left, 50, 198), ("%g" % max(steps), 440, 198)):
        out.append('<text x="%d" y="%d">%s</text>' % (x, y, text))
    return "".join(out) + "</svg>"


def of_run(folder: Path) -> Report:
    """The losses of a run's folder, from its log."""
    name = os.fspath(folder)
    rows = _read_log(name)
    curves = {key: _points(rows, key) for key in ("loss", "eval_loss")}
    last = [r for r in rows if "loss" in r][-1:]
    facts = [(k, v) for r in last for k, v in r.items() if isinstance(v, (int, float))]
    steps = [r["step"] for r in last if isinstance(r.get("step"), int)]
    best = [r["eval_loss"] for r in rows if isinstance(r.get("eval_loss"), (int, float))]
    facts += [("best eval_loss", min(best))] if best else []
    return Report("run in %s, %d steps" % (name, steps[0] if steps else 0),
                  [Table(("last step", ""), facts)],
                  _picture({k: c for k, c in curves.items() if c}))
