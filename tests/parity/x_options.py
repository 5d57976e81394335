"""Every option of x-transformers in every wrapper: what it changes, and that dra computes the same.

    x_options.py LIBDRA DOUBLE_DRA [PART OF A ROW'S NAME]

Options are those of the tables in src/formats/xt/options_table.c; tests/data/xt-effects.json has wrappers
they are tried in, a value for each that is not just true, and what some need besides. A row is a
wrapper with one option. Where dra takes the config, the library must, too; outputs, loss and
gradients of the double build are compared with it, and the model with the option with the one
without, whose parameters it has where their shapes are the same. What the option changes is the
first of these that differs: outputs, gradients, parameters (there are others), first values, what
is dropped out when learning. Rows that change nothing or differ have to be explained in the file.
"""
import copy
import ctypes
import fnmatch
import functools
import json
import math
import os
import pathlib
import random
import re
import sys
import tempfile
import warnings
from collections import Counter

try:
    import torch
    import x_models
    import x_wrappers
    from safetensors.torch import load_file
    from side import Side
    from x_compare import far
    x_models.library("E")
except ImportError as missing:
    print(f"x-transformers: skipped, {missing}")
    sys.exit(0)

ROOT = pathlib.Path(__file__).parents[2]
WITH = json.loads((ROOT / "tests/data/xt-effects.json").read_text())
EQUAL = 1e-9  # of the largest, in double; conditions of some models lose a few digits
SEED = 5


# ---- options ------------------------------------------------------------------------------------

def tables():
    """Options by table: {"stack": {name: kind}, "token": ...}."""
    text = (ROOT / "src/formats/xt/options_table.c").read_text()
    found = {}
    for name, rows in re.findall(r"dra_field (\w+)_fields\[\] = \{(.*?)\{0\}\};", text, re.S):
        found[name] = {option: kind for kind, option in
                       re.findall(r"\b(INT|REAL|BOOL|SWITCH|LIST)\(\"(\w+)\"", rows)}
    found["stack"]["custom_layers"] = "TEXT"
    return found


TABLES = tables()
OUTER = {"TransformerWrapper": "token", "ContinuousTransformerWrapper": "continuous",
         "XValTransformerWrapper": "xval", "ViTransformerWrapper": "image"}


def options_of(subject):
    """(option, kind) of a wrapper and its stack, of cross-attention, of a pair or a loss itself."""
    config = subject["config"]
    wrapper = config.get("net", config)["wrapper"]
    prefix = subject.get("prefix", "")
    outer = TABLES.get(OUTER.get(wrapper), {})
    if prefix:
        outer = {o: TABLES["token"][o] for o in ("num_tokens", "max_seq_len", "emb_dropout",
                                                 "use_abs_pos_emb", "num_memory_tokens")}
    rows = {**outer, **TABLES["stack"]}
    if subject.get("cross"):
        rows |= {f"cross_{o}": k for o, k in TABLES["stack"].items() if o.startswith("attn_")}
        rows["cross_attn_dim_context"] = "INT"
    own = {"mask_id": "INT"} if "mask_id" in config else {}
    if prefix == "enc_":
        own = {"dim": "INT", "tie_token_emb": "BOOL"}
    return [(prefix + o, k) for o, k in rows.items() if prefix == "" or o != "dim"] + \
        [(o, k) for o, k in own.items()]


def bare(subject, option):
    """Without the prefix of a side, and attn_ for cross_attn_."""
    option = option.removeprefix(subject.get("prefix", ""))
    own = option == "cross_attn_dim_context" or not option.startswith("cross_attn_")
    return option if own else option.removeprefix("cross_")


def value_of(subject, option, kind):
    name = bare(subject, option)
    if name == "custom_layers" and subject.get("cross"):
        return ["c", "f", "c"] if subject["name"] == "CrossAttender" else ["a", "c", "f", "c"]
    if name in WITH["values"]:
        return WITH["values"][name]
    return {"BOOL": True, "SWITCH": False}[kind]


def place(subject, config, option):
    """The object of a config in which an option stands."""
    if "net" in config and option != "mask_id":
        config = config["net"]
    inside = bare(subject, option) in TABLES["stack"] or option == "cross_attn_dim_context"
    return config["attn_layers"] if inside and "attn_layers" in config else config


def put(subject, config, option, value):
    where = config if option == "release" else place(subject, config, option)
    if value is None:
        where.pop(option, None)
    else:
        where[option] = value


def configs(subject, option, kind):
    """Without the option and with it, with what it needs."""
    without = {"model_type": "x-transformers", "release": "E", **copy.deepcopy(subject["config"])}
    name, prefix = bare(subject, option), subject.get("prefix", "")
    cross = "cross_" if option.removeprefix(prefix) == "cross_" + name else ""
    spell = lambda key: key if key == "release" else \
        prefix + (cross if key.startswith("attn_") else "") + key
    for key, value in WITH["has"].get(name, {}).items():
        if key != "cross_attend" or not subject.get("cross"):
            put(subject, without, spell(key), value)
    used = copy.deepcopy(without)
    for key, value in WITH["also"].get(name, {}).items():
        put(subject, used, spell(key), value)
    put(subject, used, option, value_of(subject, option, kind))
    return without, used


# ---- dra ----------------------------------------------------------------------------------------

class Checker:
    """Whether dra takes a config: None, or why not."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.dra_model_config_parse.argtypes = [ctypes.c_char_p, ctypes.c_char_p,
                                                    ctypes.c_size_t, ctypes.c_void_p,
                                                    ctypes.c_void_p]
        self.lib.dra_model_create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.dra_model_destroy.argtypes = [ctypes.c_void_p]

    def refusal(self, config):
        text, room = json.dumps(config).encode(), ctypes.create_string_buffer(1 << 17)
        error, model = ctypes.create_string_buffer(1 << 12), ctypes.c_void_p()
        bad = self.lib.dra_model_config_parse(b"config", text, len(text), room, error) or \
            self.lib.dra_model_create(room, ctypes.byref(model), error)
        self.lib.dra_model_destroy(model)
        return error.raw[4:].split(b"\0")[0].decode() if bad else None


# ---- what both compute --------------------------------------------------------------------------

class Words(x_wrappers.Text):
    """A language model, an encoder, or one that puts out classes."""

    def __init__(self, case, seed):
        super().__init__(case, seed)
        self.net = case.config.get("net", case.config)
        self.pooled = self.net.get("average_pool_embed") or self.net.get("use_cls_token")
        self.whole = self.net["attn_layers"]["type"] != "Decoder"
        self.targets = self.ids.roll(3, 1)

    def outputs(self, model):
        net = getattr(model, "net", model)
        if self.pooled:
            return {"logits": net(self.ids)}
        logits, hidden = net(self.ids, return_logits_and_embeddings=True)
        return {"logits": logits, "hidden": hidden}

    def learns(self):
        return None if self.pooled else {**self.reads(), "targets": self.targets}

    def loss(self, model):
        return torch.nn.functional.cross_entropy(self.outputs(model)["logits"].transpose(1, 2),
                                                 self.targets)


class Besides:
    """A kind whose stack reads something besides what the kind knows of."""

    def __init__(self, kind, **more):
        self.kind, self.inside, self.more = kind, getattr(kind, "inside", False), more

    def reads(self):
        return {**self.kind.reads(), **self.more}

    def learns(self):
        """`dra grad` reads nothing besides the text of a model that reads it in pieces."""
        learns = self.kind.learns()
        pieces = isinstance(self.kind, x_wrappers.Pieces)
        return None if pieces or learns is None else {**learns, **self.more}

    def outputs(self, model):
        return self.kind.outputs(model)

    def loss(self, model):
        return self.kind.loss(model)


class Pieces(x_wrappers.Pieces):
    """Learns as Transformer-XL, whichever wrapper is around it."""

    def loss(self, model):
        return x_models.library("E").XLAutoregressiveWrapper(getattr(model, "net", model))(self.ids)


def kind_for(config, model):
    kind, net = x_wrappers.kind_of(config), config.get("net", config)
    if net["wrapper"] == "TransformerWrapper":
        kind = Pieces if net.get("max_mem_len") else Words
    if kind is x_wrappers.Pair:
        vocab = min(config["enc_num_tokens"], config["dec_num_tokens"])
        config = {**config, "dec_num_tokens": vocab}
    made = kind(x_wrappers.SimpleNamespace(config=config, masked=False, T=11), SEED)
    rows = next(iter(made.reads().values())).shape[0]
    for stack in [p for p in model.modules() if hasattr(p, "layer_types")]:
        more = {}
        if getattr(stack, "need_condition", False):
            more["condition"] = wave(rows, stack.dim_condition)
        if stack.cross_attend and not isinstance(made, (x_wrappers.Pair, x_wrappers.Stack)):
            more["context"] = wave(rows, 5, net.get("attn_layers", net).get(
                "cross_attn_dim_context", stack.dim))
        if more:
            stack.forward = functools.partial(stack.forward, **more)
            made = Besides(made, **more)
    return made


def wave(*shape):
    return torch.sin(torch.arange(math.prod(shape)) * 1.3).view(shape).float().double()


def build(config, like=None):
    """A model with numbers of its own, those of another where there are such."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(SEED)
    early = "resi_dual\": true" in json.dumps(config)
    first = x_models.in_double(x_models.build(config, x_models.library("resi_dual")
                                              if early else None))
    drawn = copy.deepcopy(first.state_dict())
    x_models.shake(first, SEED)
    if like is not None:
        known = dict(like.named_parameters())
        with torch.no_grad():
            for name, p in first.named_parameters():
                if name in known and known[name].shape == p.shape:
                    p.copy_(known[name])
    return first, drawn


def differs(a, b):
    return a.shape != b.shape or not torch.equal(a, b)


def tables_differ(a, b):
    return a.keys() != b.keys() or any(differs(a[k], b[k]) for k in a)


def in_training(model, kind):
    torch.manual_seed(1)
    random.seed(1)
    model.train()
    with torch.no_grad():
        found = kind.outputs(model)
    model.eval()
    return found


def effect(base, used):
    """What differs between two sides: (model, first values, kind, numbers)."""
    (one, first, kind_one, a), (two, second, kind_two, b) = base, used
    outputs = lambda n: {k: n[k] for k in n["outputs"]}
    if tables_differ(outputs(a), outputs(b)):
        return "outputs"
    shapes = lambda m: {n: p.shape for n, p in m.state_dict().items()}
    if shapes(one) != shapes(two):
        return "parameters"
    if a.keys() == b.keys() and "names" in a and any(differs(a[n], b[n]) for n in a["names"]):
        return "gradients"
    if tables_differ(first, second):
        return "first values"
    if tables_differ(in_training(one, kind_one), in_training(two, kind_two)):
        return "dropout"
    return "nothing"


def compare(side, kind, numbers):
    got = side.forward(kind.reads(), "--outputs", ",".join(numbers["outputs"]))
    worst = max((far(got[n], numbers[n]), n) for n in numbers["outputs"])
    if kind.learns() is not None:
        got = {n.removeprefix("net."): t for n, t in side.gradients(kind.learns()).items()}
        most = max(numbers[n].abs().max().item() for n in numbers["names"])
        for n in numbers["names"]:
            worst = max(worst, (far(got[n], numbers[n], 1e-3 * most), n))
    return worst


def same_first_values(side, config, drawn):
    """Of parameters that the library starts as a number: the first that dra draws otherwise."""
    with open(f"{side.work}/c.json", "w") as f:
        json.dump(config, f)
    side.call("init", "--config", f"{side.work}/c.json", "--out", f"{side.work}/drawn")
    ours = load_file(f"{side.work}/drawn/model.safetensors")
    for name, t in drawn.items():
        if t.numel() > 1 and (t == t.flatten()[0]).all() and far(ours[name], t) > 1e-6:
            return name
    return None


# ---- rows ---------------------------------------------------------------------------------------

def fits(patterns, name):
    return any(fnmatch.fnmatchcase(name, p) for p in patterns.split("|"))


def explained(subject, option, what):
    return any(fits(row["subjects"], subject["name"]) and row["what"] == what
               and fits(row["options"], bare(subject, option)) for row in WITH["explained"])


def measure(checker, program, subject, option, kind, cache):
    """(verdict, what, remark)"""
    without, used = configs(subject, option, kind)
    refusal = checker.refusal(used)
    if refusal:
        return "refused", bare(subject, option), refusal
    if used == without:
        return "same", "default", ""
    with tempfile.TemporaryDirectory() as work:
        try:
            key = json.dumps(without, sort_keys=True)
            if key not in cache:
                model, first = build(without)
                kind_ = kind_for(without, model)
                cache[key] = (model, first, kind_, x_wrappers.theirs(model, kind_))
            model, first = build(used, cache[key][0])
            made = kind_for(used, model)
            numbers = x_wrappers.theirs(model, made)
        except Exception as error:
            return "not there", type(error).__name__, str(error)[:150]
        x_models.save(model, used, f"{work}/m", torch.float64)
        side = Side(program, f"{work}/m", work)
        try:
            error, name = compare(side, made, numbers)
        except Exception as failure:
            return "different", "fails", str(failure)[:200]
        if not error <= EQUAL:
            return "different", f"{name} {error:.1e}", ""
        what = effect(cache[key], (model, first, made, numbers))
        if what == "first values":
            bad = same_first_values(side, used, first)
            if bad:
                return "different", f"first values of {bad}", ""
        return "equal", what, ""


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(f"usage: {sys.argv[0]} LIBDRA DOUBLE_DRA [PART OF A ROW'S NAME]")
    checker, program = Checker(os.path.abspath(sys.argv[1])), os.path.abspath(sys.argv[2])
    part = sys.argv[3] if len(sys.argv) == 4 else ""
    verdicts, effects, bad = Counter(), Counter(), 0
    for subject in WITH["subjects"]:
        cache, own = {}, Counter()
        for option, kind in options_of(subject):
            if part not in f"{subject['name']}: {option}":
                continue
            verdict, what, remark = measure(checker, program, subject, option, kind, cache)
            own[verdict] += 1
            effects.update([what] if verdict == "equal" else [])
            fine = verdict in ("refused", "same") or verdict == "equal" and what != "nothing"
            if not fine and not explained(subject, option,
                                          "nothing" if what == "nothing" else verdict):
                bad += 1
                print(f"UNEXPLAINED {subject['name']}: {option}: {verdict}, {what} {remark}",
                      flush=True)
            elif part or verdict == "refused" and "REFUSED" in os.environ:
                print(f"{subject['name']}: {option}: {verdict}, {what} {remark}", flush=True)
        verdicts += own
        print(f"{subject['name']:<45} " + ", ".join(f"{n} {v}" for v, n in sorted(own.items())),
              flush=True)
    print("equal, and what they change: " + ", ".join(f"{n} {e}" for e, n in effects.most_common()))
    print(", ".join(f"{n} {v}" for v, n in sorted(verdicts.items())) + f"; {bad} unexplained")
    sys.exit(1 if bad or not verdicts["equal"] else 0)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    main()
