"""Questions about texts: how likely they are, where they are, what they would change."""
import ctypes
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from . import _c, _progress
from ._library import REAL, Handle, address, call, ids_of, lib, make, view
from .errors import InvalidValue, OutOfRange, ShapeError
from .reading import Reading, Text, is_fresh
from .state import State


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


def is_one(texts: Any) -> bool:
    """A text or ids, not a list of them."""
    return isinstance(texts, str) or (len(texts) > 0 and np.ndim(texts[0]) == 0 and
                                      not isinstance(texts[0], str))


class Questions(Reading):
    """The part of a model that answers questions about texts."""

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
        if is_one(texts):
            return self._score(self._ids(texts, begin=is_fresh(state)), state)
        return _progress.each(lambda t: self._score(self._ids(t, begin=is_fresh(state)), state),
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
        if is_one(texts):
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
