"""lm-eval's tasks for models of dra:

    python -m dra.eval --model_args path=my-model --tasks lambada_openai

All options are lm-eval's own; `--model_args` has `path` (a folder, a file or a preset) and what
`dra.load()` takes besides: device, threads, dtype, seed. What contexts have in common is read
once: each goes on from a fork of the state. Numbers are those of `m.score()`.
"""
import json
import os
import sys
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

try:
    from lm_eval import utils
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
except ImportError as e:
    raise ImportError("dra.eval: %s; expected lm-eval: pip install lm-eval" % e) from None

from . import generation
from ._library import Path
from .errors import InvalidValue
from .model import Model, load
from .reading import PIECE
from .state import State

Ids = Tuple[int, ...]

#: Options of a task's generation_kwargs that only say what a generator of dra does anyway.
_USUAL = {"num_beams": 1, "use_cache": True, "num_return_sequences": 1}


def _shared(a: Ids, b: Ids) -> int:
    """How many ids two sequences have in common from the beginning."""
    n = 0
    for x, y in zip(a, b):
        if x != y:
            break
        n += 1
    return n


def read_shared(model: Model, contexts: Sequence[Ids]) -> Iterator[Tuple[Ids, State]]:
    """The state after each of these, in another order. What several begin with is read once, up to
    a place where reading in parts has the bits of reading at once."""
    grain = model.cut or PIECE
    order = sorted(set(contexts))
    path: List[Tuple[int, State]] = [(0, model.state())]  # states after beginnings of the next one
    before = 0  # tokens it has in common with the one before
    for i, ids in enumerate(order):
        while path[-1][0] > before:
            path.pop()
        depth, state = path[-1][0], path[-1][1].fork()
        before = _shared(ids, order[i + 1]) // grain * grain if i + 1 < len(order) else 0
        if before > depth:
            model.read(list(ids[depth:before]), state)
            path.append((before, state.fork()))
            depth = before
        if len(ids) > depth:
            model.read(list(ids[depth:]), state)
        yield ids, state


@register_model("dra")
class DraLM(TemplateLM):
    """A model of dra for lm-eval; `model` is one that is loaded already."""

    def __init__(self, path: Optional[str] = None, model: Optional[Model] = None,
                 device: Optional[str] = None, max_gen_toks: int = 256,
                 batch_size: Any = None, max_batch_size: Any = None, **options: Any) -> None:
        super().__init__()
        if batch_size not in (None, 1, "1") or max_batch_size is not None:
            raise InvalidValue("dra.eval: batch_size: requests are read one after the other, "
                               "expected 1, found %s" % (max_batch_size or batch_size))
        if (path is None) == (model is None):
            raise InvalidValue("dra.eval: expected a model: --model_args path=...")
        self.model = model or load(str(path), device=device or "cpu", **options)
        self.max_gen_toks = int(max_gen_toks)
        words = self.model.tokenizer
        self._begin: Ids = tuple(words.encode("", begin=True).tolist())
        self._template: Optional[generation.Template] = None
        self.cut_off = 0  #: contexts of which the beginning was left out, for lack of positions

    # -- tokens

    @property
    def eot_token_id(self) -> Optional[int]:
        return self.model.tokenizer.end

    @property
    def prefix_token_id(self) -> Optional[int]:
        """What a text without a context follows; None: nothing, its first token does not count."""
        return self._begin[-1] if self._begin else self.eot_token_id

    def tok_encode(self, string: str, add_special_tokens: Optional[bool] = None,
                   **_: Any) -> List[int]:
        ids = self.model.tokenizer.encode(string).tolist()
        if add_special_tokens is False or tuple(ids[:len(self._begin)]) == self._begin:
            return ids
        return [*self._begin, *ids]

    def _pair(self, context: str, continuation: str) -> Tuple[Ids, Ids]:
        if context == "":
            prefix = self.prefix_token_id
            ids = self.tok_encode(continuation, add_special_tokens=False)
            return (() if prefix is None else (prefix,)), tuple(ids)
        head, tail = self._encode_pair(context, continuation)
        return tuple(head), tuple(tail)

    def _fit(self, context: Ids, more: int) -> Ids:
        """As much of the end of a context as there are positions for, with `more` tokens after."""
        room = self.model._positions
        if not room or len(context) + more <= room:
            return context
        if more >= room:
            raise InvalidValue("dra.eval: %d tokens after a context; the model has positions for "
                               "%d" % (more, room))
        self.cut_off += 1
        return context[len(context) + more - room:]

    # -- what lm-eval asks

    def loglikelihood(self, requests: List[Any], disable_tqdm: bool = False,
                      **_: Any) -> List[Tuple[float, bool]]:
        pairs = [self._pair(*r.args) for r in requests]
        return self._loglikelihood_tokens([(r.args, *p) for r, p in zip(requests, pairs)],
                                          disable_tqdm)

    def _loglikelihood_tokens(self, requests: List[Tuple[Any, Sequence[int], Sequence[int]]],
                              disable_tqdm: bool = False, **_: Any) -> List[Tuple[float, bool]]:
        after: Dict[Ids, List[Tuple[int, Ids]]] = {}
        for i, (_text, context, rest) in enumerate(requests):
            fitted = self._fit(tuple(context), max(len(rest) - 1, 0))
            after.setdefault(fitted, []).append((i, tuple(rest)))
        out: List[Tuple[float, bool]] = [(0.0, True)] * len(requests)
        progress = self._progress(len(requests), disable_tqdm, "loglikelihood")
        for context, state in read_shared(self.model, list(after)):
            for i, rest in after[context]:
                start = state if context else None
                score, best = self.model._score_and_best(np.array(rest, np.int32), start)
                same = best == np.array(rest, np.int32)[len(rest) - len(best):]
                out[i] = (score.logprob, bool(same.all()))
                if requests[i][0] is not None:
                    self.cache_hook.add_partial("loglikelihood", requests[i][0], out[i])
                progress.update(1)
        progress.close()
        self._tell_cut_off()
        return out

    def loglikelihood_rolling(self, requests: List[Any],
                              disable_tqdm: bool = False) -> List[float]:
        progress = self._progress(len(requests), disable_tqdm, "loglikelihood_rolling")
        out = []
        for r in requests:
            out.append(sum(self._windows(r.args[0])))
            self.cache_hook.add_partial("loglikelihood_rolling", r.args, out[-1])
            progress.update(1)
        progress.close()
        return out

    def _windows(self, text: str) -> Iterator[float]:
        """Log probabilities of a text, whole where there are positions for it, else in windows."""
        ids = self.tok_encode(text, add_special_tokens=False)
        prefix, room = self.prefix_token_id, self.model._positions
        if prefix is None:
            prefix, ids = (ids[0], ids[1:]) if ids else (0, ids)
        if not room or len(ids) <= room:
            room = len(ids)
        if not ids:
            return
        for window in utils.get_rolling_token_windows(ids, prefix, room, 1):
            head, tail = utils.make_disjoint_window(window)
            state = self.model.read(list(head))
            yield self.model.score(list(tail), state=state).logprob

    def generate_until(self, requests: List[Any], disable_tqdm: bool = False) -> List[str]:
        asked = [_generation(r.args[1], self.max_gen_toks) for r in requests]
        contexts = [self._fit(tuple(self.tok_encode(r.args[0])) or self._start(), tokens)
                    for r, (tokens, _) in zip(requests, asked)]
        of: Dict[Ids, List[int]] = {}
        for i, ids in enumerate(contexts):
            of.setdefault(ids, []).append(i)
        out = [""] * len(requests)
        progress = self._progress(len(requests), disable_tqdm, "generate_until")
        for ids, state in read_shared(self.model, contexts):
            for i in of[ids]:
                tokens, options = asked[i]
                out[i] = self.model.generate(tokens=tokens, state=state.fork(), **options)
                self.cache_hook.add_partial("generate_until", requests[i].args, out[i])
                progress.update(1)
        progress.close()
        self._tell_cut_off()
        return out

    def _start(self) -> Ids:
        if self.prefix_token_id is None:
            raise InvalidValue("dra.eval: a context is empty, and the model has no token that "
                               "begins a text")
        return (self.prefix_token_id,)

    # -- chats

    @property
    def tokenizer_name(self) -> str:
        return str(self.model._path or self.model._title).replace("/", "__")

    def chat_template(self, chat_template: Any = False) -> str:
        """Which template it is, for the results."""
        return "" if chat_template is False else "dra: the template of the model's folder"

    def apply_chat_template(self, chat_history: List[Dict[str, str]],
                            add_generation_prompt: bool = True) -> str:
        if self._template is None:
            self._template = generation.Template(self.model, None)
        return self._template.render(chat_history, add_generation_prompt)

    # -- what it tells

    @staticmethod
    def _progress(total: int, quiet: bool, what: str) -> Any:
        from tqdm import tqdm  # lm-eval needs it
        return tqdm(total=total, disable=quiet, desc=what)

    def _tell_cut_off(self) -> None:
        if self.cut_off:
            print("dra.eval: %d contexts are longer than the model's %d positions: only their ends "
                  "were read" % (self.cut_off, self.model._positions), file=sys.stderr)
            self.cut_off = 0


def _generation(given: Mapping[str, Any], most: int) -> Tuple[int, Dict[str, Any]]:
    """Tokens to write and options of `m.generate`, of a task's generation_kwargs."""
    words = dict(given)
    until = words.pop("until", None) or []
    tokens = int(words.pop("max_gen_toks", most))
    for name, usual in _USUAL.items():
        if words.pop(name, usual) != usual:
            raise InvalidValue("dra.eval: generation_kwargs: %s is not offered, expected %s" %
                               (name, usual))
    if not words.pop("do_sample", words.get("temperature", 0) > 0):
        words = {"temperature": 0}
    words["stop"] = [s for s in ([until] if isinstance(until, str) else until) if s]
    return tokens, words


def write_task(folder: Path, name: str, questions: Sequence[Mapping[str, Any]],
               **keys: Any) -> None:
    """A task of one's own for --include_path FOLDER: questions are {"question": TEXT, "choices":
    [TEXT, ...], "answer": NUMBER}, of which lm-eval takes the likeliest choice. `keys` are those of
    lm-eval's task files in place of these, such as output_type; None leaves one out."""
    data = os.path.join(os.fspath(folder), name + ".json")
    with open(data, "w") as f:
        f.write("\n".join(json.dumps(q) for q in questions))
    task = dict({"task": name, "dataset_path": "json",
                 "dataset_kwargs": {"data_files": {"test": data}}, "test_split": "test",
                 "output_type": "multiple_choice", "doc_to_text": "{{question}}",
                 "doc_to_choice": "{{choices}}", "doc_to_target": "answer", "target_delimiter": "",
                 "metric_list": [{"metric": "acc", "aggregation": "mean",
                                  "higher_is_better": True}]}, **keys)
    with open(os.path.join(os.fspath(folder), name + ".yaml"), "w") as f:
        json.dump({k: v for k, v in task.items() if v is not None}, f)  # which is YAML


def _has_option(name: str) -> bool:
    return any(a == name or a.startswith(name + "=") for a in sys.argv)


def main() -> None:
    """lm-eval's own command line with this model in the place of --model."""
    from lm_eval.__main__ import cli_evaluate
    if _has_option("--model"):
        sys.exit("dra.eval: --model is dra; --model_args path=... says which")
    first = sys.argv[1] if len(sys.argv) > 1 else "run"
    if first == "run" or first.startswith("-"):
        device = [] if _has_option("--device") else ["--device", "cpu"]  # lm-eval's own is cuda:0
        at = 2 if first == "run" else 1
        sys.argv[at:at] = ["--model", "dra", *device]
    cli_evaluate()


if __name__ == "__main__":
    main()
