"""Models of x-transformers that are no language models, and Transformer-XL: rows of
x_transformers.py, which says what its columns are.

A row is a kind with a config and what it reads. A kind says what the library computes of it: its
outputs by the names of `dra forward`, and its loss, by the library's own wrapper where that is
right. Pads are the last ones of a row; where they are tokens of a decoder, outputs at them are not
compared.
"""
import functools
import json
import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F

import x_models
from side import Side
from x_compare import changed, compare_gradient, far, load_strictly, there_and_back, worst

SIZES = {"dim": 32, "depth": 2, "heads": 4, "attn_dim_head": 8}
TOKENS, SOURCE, VOCAB, IGNORE, NUMBER = 11, 9, 37, -100, 3
GENERATED, START = 6, 3
CASES = []


# ---- inputs -------------------------------------------------------------------------------------

def drawn(seed, vocab=VOCAB):
    """Functions that draw tokens and vectors; vectors are exact in float32."""
    g = torch.Generator().manual_seed(seed)
    ids = lambda *shape: torch.randint(vocab, shape, generator=g)
    x = lambda *shape: torch.randn(shape, generator=g).float().double()
    return ids, x


def width_of(config):
    return config["dim"] if "dim" in config else config["attn_layers"]["dim"]


def images(x, config, rows=2):
    return x(rows, config.get("channels", 3), config["image_size"], config["image_size"])


def pads(n, on=True):
    """Two rows of which the second, and then also the first, end early."""
    return torch.arange(n) < torch.tensor([[n - 2], [n // 2 + 1]]) if on else None


def given(**tensors):
    return {name: t for name, t in tensors.items() if t is not None}


def next_targets(ids, mask=None):
    """What follows each token; -100 does not count."""
    out = torch.full_like(ids, IGNORE)
    out[:, :-1] = ids[:, 1:] if mask is None else torch.where(mask[:, 1:], ids[:, 1:], IGNORE)
    return out


# ---- kinds --------------------------------------------------------------------------------------

class Pair:
    """XTransformer, from a source to a text, after vectors or an image."""

    causal, writes = True, True

    def __init__(self, case, seed):
        ids, x = drawn(seed, case.config["dec_num_tokens"])
        self.src, self.tgt, self.mask = ids(2, SOURCE), ids(2, TOKENS), pads(SOURCE, case.masked)
        if case.masked:  # as `dra grad` reads pads, which feed-forward layers that shift see
            self.src[~self.mask] = 0
        prepend = case.config.get("src_prepend")
        self.img = images(x, prepend) if isinstance(prepend, dict) else None
        self.prepend = x(2, prepend, case.config["dim"]) if isinstance(prepend, int) else None

    def reads(self):
        return given(src=self.src, tgt=self.tgt, src_mask=self.mask, img=self.img,
                     prepend=self.prepend)

    def learns(self):
        if self.img is None and self.prepend is None:
            return self.reads()
        return {**self.reads(), "tgt": self.tgt[:, :-1], "targets": self.tgt[:, 1:]}

    def before(self, model):
        return self.prepend if self.img is None else model.vit(self.img, return_embeddings=True)

    def context(self, model):
        vectors = self.before(model)
        if self.mask is None or vectors is None:
            return model.encoder(self.src, mask=self.mask, prepend_embeds=vectors,
                                 return_embeddings=True), self.mask
        seen = torch.cat([torch.ones(2, vectors.shape[1], dtype=torch.bool), self.mask], 1)
        return model.encoder(self.src, mask=self.mask, prepend_embeds=vectors,
                             return_embeddings=True), seen

    def outputs(self, model):
        context, mask = self.context(model)
        logits, hidden = model.decoder.net(self.tgt, context=context, context_mask=mask,
                                           return_logits_and_embeddings=True)
        return {"logits": logits, "hidden": hidden}

    def loss(self, model):
        return model(self.src, self.tgt, mask=self.mask, src_prepend_embeds=self.before(model))

    def generated(self, model):
        context, mask = self.context(model)
        return model.decoder.generate(self.tgt[:, :START], GENERATED, context=context,
                                      context_mask=mask, temperature=0.0, cache_kv=False)


class Caption:
    """A decoder that sees vectors, or what another model makes of an image or of vectors."""

    causal, writes = True, True

    def __init__(self, case, seed):
        ids, x = drawn(seed, case.config["num_tokens"])
        context, stack = case.config.get("context", {}), case.config["attn_layers"]
        self.net = context.get("wrapper")
        self.ids = ids(2, TOKENS)
        self.img = images(x, context) if self.net == "ViTransformerWrapper" else None
        width = width_of(context) if context else stack.get("cross_attn_dim_context", stack["dim"])
        self.x = x(2, SOURCE, width) if self.img is None else None
        self.mask = pads(SOURCE, case.masked)

    def reads(self):
        return given(ids=self.ids, img=self.img, context=self.x, context_mask=self.mask)

    learns = reads

    def parts(self, model):
        if self.net is None:
            return model, self.x
        encoder = model["encoder"]
        if self.img is not None:
            return model["decoder"], encoder(self.img, return_embeddings=True)
        return model["decoder"], encoder(self.x, mask=self.mask)

    def outputs(self, model):
        decoder, context = self.parts(model)
        logits, hidden = decoder(self.ids, context=context, context_mask=self.mask,
                                 return_logits_and_embeddings=True)
        return {"logits": logits, "hidden": hidden}

    def wrapper(self, decoder):
        return x_models.library("E").AutoregressiveWrapper(decoder)

    def loss(self, model):
        decoder, context = self.parts(model)
        return self.wrapper(decoder)(self.ids, context=context, context_mask=self.mask)

    def generated(self, model):
        decoder, context = self.parts(model)
        return self.wrapper(decoder).generate(
            self.ids[:, :START], GENERATED, context=context, context_mask=self.mask,
            temperature=0.0, cache_kv=False)


class Stack:
    """Decoder, Encoder and CrossAttender by themselves: squared errors of their outputs."""

    writes = False

    def __init__(self, case, seed):
        _, x = drawn(seed)
        config = case.config
        self.net = config.get("context", {}).get("wrapper")
        self.causal = config["wrapper"] == "Decoder"
        sees = config["wrapper"] == "CrossAttender" or config.get("cross_attend")
        dim = config["dim"]
        self.x, self.y = x(2, TOKENS, dim), x(2, TOKENS, dim)
        self.context = x(2, SOURCE, config.get("cross_attn_dim_context", dim)) if sees else None
        self.mask = pads(SOURCE if sees else TOKENS, case.masked)

    def reads(self):
        if self.context is None:
            return given(x=self.x, mask=self.mask)
        return given(x=self.x, context=self.context, context_mask=self.mask)

    def learns(self):
        return {**self.reads(), "targets": self.y}

    def outputs(self, model):
        if self.context is None:
            return {"hidden": model(self.x, mask=self.mask)}
        if self.net is None:
            return {"hidden": model(self.x, context=self.context, context_mask=self.mask)}
        return {"hidden": model["decoder"](
            self.x, context=model["encoder"](self.context, mask=self.mask),
            context_mask=self.mask)}

    def loss(self, model):
        each = (self.outputs(model)["hidden"] - self.y) ** 2
        own = self.mask is not None and self.context is None
        return (each[self.mask] if own else each).mean()


class Image:
    """ViTransformerWrapper: logits of classes, or the mean without any."""

    causal, writes = False, False

    def __init__(self, case, seed):
        _, x = drawn(seed)
        self.classes = case.config.get("num_classes")
        self.img = images(x, case.config, 3)
        self.labels = torch.tensor([1, 0, 4])

    def reads(self):
        return {"img": self.img}

    def learns(self):
        return {"img": self.img, "labels": self.labels} if self.classes else None

    def outputs(self, model):
        out, hidden = model(self.img, return_logits_and_embeddings=True)
        return {"logits" if self.classes else "out": out, "hidden": hidden}

    def loss(self, model):
        return F.cross_entropy(model(self.img), self.labels)


class Vectors:
    """ContinuousTransformerWrapper: a decoder predicts the next vector; an encoder, or one of other
    widths, something else."""

    writes = False

    def __init__(self, case, seed):
        _, x = drawn(seed)
        config = case.config
        net = config.get("net", config)
        self.causal = net["attn_layers"]["type"] == "Decoder"
        dim = width_of(net)
        read, put = net.get("dim_in", dim), net.get("dim_out", dim)
        self.x, self.mask = x(2, TOKENS, read), pads(TOKENS, case.masked)
        self.y = x(2, TOKENS, put) if not self.causal or read != put else None
        self.inside = "net" in config

    def reads(self):
        return given(x=self.x, mask=self.mask)

    def learns(self):
        return given(**self.reads(), targets=self.y)

    def outputs(self, model):
        net = model.net if self.inside else model
        return {"out": net(self.x, mask=self.mask),
                "hidden": net(self.x, mask=self.mask, return_embeddings=True)}

    def loss(self, model):
        if self.y is None:
            wrapper = x_models.library("E").ContinuousAutoregressiveWrapper
            return (model if self.inside else wrapper(model))(
                self.x, **given(mask=self.mask))
        each = (self.outputs(model)["out"] - self.y) ** 2
        return (each if self.mask is None else each[self.mask]).mean()


class Numbers:
    """XValTransformerWrapper. With pads its loss is computed here: the library's counts what
    follows the last token, a pad."""

    causal, writes = True, False

    def __init__(self, case, seed):
        self.inside = "net" in case.config
        net = case.config["net"] if self.inside else case.config
        ids, x = drawn(seed, net["num_tokens"])
        self.token = net["numerical_token_id"]
        self.ids, self.nums, self.mask = ids(2, TOKENS), x(2, TOKENS), pads(TOKENS, case.masked)
        self.ids[:, ::3] = self.token

    def reads(self):
        return given(ids=self.ids, nums=self.nums, mask=self.mask)

    learns = reads

    def outputs(self, model):
        net = model.net if self.inside else model
        logits, numbers = net(self.ids, self.nums, mask=self.mask)
        hidden = net(self.ids, self.nums, mask=self.mask, return_embeddings=True)
        return {"logits": logits, "numbers": numbers, "hidden": hidden}

    def loss(self, model):
        if self.mask is None:
            wrapper = x_models.library("E").XValAutoregressiveWrapper
            return (model if self.inside else wrapper(model))(self.ids, self.nums)
        out, targets = self.outputs(model), next_targets(self.ids, self.mask)
        each = F.cross_entropy(out["logits"].transpose(1, 2), targets, reduction="none",
                               ignore_index=IGNORE)
        follow = self.nums.roll(-1, 1)
        each = each + torch.where(targets == self.token, (out["numbers"] - follow) ** 2, 0.0)
        return each[targets != IGNORE].mean()


class Pieces:
    """Transformer-XL: a text of several pieces, each with the memories of those before it."""

    causal, writes = True, True

    def __init__(self, case, seed):
        self.inside = "net" in case.config
        self.config = case.config["net"] if self.inside else case.config
        ids, _ = drawn(seed, self.config["num_tokens"])
        self.ids = ids(2, case.T)

    def reads(self):
        return {"ids": self.ids}

    learns = reads

    def outputs(self, model, ids=None):
        found, mems = [], None
        model = model.net if self.inside else model
        ids = self.ids if ids is None else ids
        for piece in ids.split(self.config["max_seq_len"], dim=1):
            (logits, hidden), after = model(piece, mems=mems, return_logits_and_embeddings=True,
                                            return_mems=True)
            mems = after if self.config["max_mem_len"] else None
            found.append((logits, hidden))
        logits, hidden = zip(*found)
        return {"logits": torch.cat(logits, 1), "hidden": torch.cat(hidden, 1)}

    def loss(self, model):
        wrapper = x_models.library("E").XLAutoregressiveWrapper
        return (model if self.inside else wrapper(model))(self.ids)

    def generated(self, model):
        """By reading everything again: the library's own loses track at the end of a piece."""
        out = self.ids[:, :START]
        for _ in range(GENERATED + 2):
            step = self.outputs(model, out)["logits"][:, -1:].argmax(-1)
            out = torch.cat([out, step], 1)
        return out[:, START:]


class Text:
    """A language model; what reads several pieces is above."""

    def __init__(self, case, seed):
        net = case.config.get("net", case.config)
        self.inside = "net" in case.config
        self.ids = drawn(seed, net["num_tokens"])[0](2, TOKENS)

    def reads(self):
        return {"ids": self.ids}

    def outputs(self, model):
        return {"logits": (model.net if self.inside else model)(self.ids)}


def kind_of(config):
    """Of any config."""
    net = config.get("net", config)
    stack = net.get("attn_layers", {})
    if net["wrapper"] == "TransformerWrapper":
        return Caption if stack.get("cross_attend") else Pieces if net.get("max_mem_len") else Text
    return {"XTransformer": Pair, "ViTransformerWrapper": Image, "XValTransformerWrapper": Numbers,
            "ContinuousTransformerWrapper": Vectors}.get(net["wrapper"], Stack)


# ---- cases --------------------------------------------------------------------------------------

def case(features, kind, config, masked=False, T=TOKENS, title=""):
    CASES.append(SimpleNamespace(
        features=features, kind=kind, masked=masked, T=T,
        name=f"{config['wrapper']} {title}{' masked' * masked}".replace("  ", " ").rstrip(),
        config={"model_type": "x-transformers", "release": "E", **config}))


def options_text(options):
    return " ".join(k if v is True else f"{k}={x_models.words(v)}" for k, v in options.items()
                    if not isinstance(v, dict))


def pair(features, masked=False, vit=None, **more):
    sides = {f"{side}_{k}": v for side in ("enc", "dec") for k, v in {
        "num_tokens": VOCAB, "max_seq_len": 16, "depth": 2, "heads": 4,
        "attn_dim_head": 8}.items()}
    config = {"wrapper": "XTransformer", "dim": 32, **sides, **more}
    if vit:
        config["src_prepend"] = vit
    title = options_text(more) + " after an image" * bool(vit)
    case(features, Pair, config, masked, title=title)


def image(**more):
    return {"wrapper": "ViTransformerWrapper", "image_size": 8, "patch_size": 4,
            "attn_layers": {"type": "Encoder", **SIZES}, **more}


def caption(features, masked=False, context=None, **stack):
    config = {"wrapper": "TransformerWrapper", "num_tokens": VOCAB, "max_seq_len": 16,
              "attn_layers": {"type": "Decoder", **SIZES, "cross_attend": True, **stack}}
    if context:
        config["context"] = context
    title = options_text({"cross_attend": True, **stack})
    case(features, Caption, config, masked,
         title=title + (f" context={context['wrapper']}" if context else ""))


def stack(features, wrapper, masked=False, context=None, **more):
    config = {"wrapper": wrapper, **SIZES, **more}
    if context:
        config["context"] = context
    case(features, Stack, config, masked,
         title=options_text(more) + (f" context={context['wrapper']}" if context else ""))


def wrapped(features, kind, wrapper, masked=False, inside=None, type="Decoder", stack=None,
            T=TOKENS, **more):
    config = {"wrapper": wrapper, **more, "attn_layers": {"type": type, **SIZES, **(stack or {})}}
    title = " ".join([type, options_text({**more, **(stack or {})})])
    if inside:
        title += f" around {wrapper}"
        config = {"wrapper": inside, "net": config}
    case(features, kind, config, masked, T, title)


def pair_cases():
    pair("F04")
    pair("F04", masked=True)
    pair("F05", tie_token_emb=True)
    pair("F05", masked=True, tie_token_emb=True, enc_num_memory_tokens=2)
    pair("F04 F48", dec_cross_residual_attn=True)
    pair("F04 F50", enc_rotary_pos_emb=True, dec_rotary_pos_emb=True)
    pair("F04 F49", masked=True, enc_rel_pos_bias=True, dec_rel_pos_bias=True)
    pair("F04 F23", masked=True, enc_use_rmsnorm=True, dec_use_rmsnorm=True, enc_ff_glu=True,
         dec_ff_glu=True)
    pair("F04 F33", masked=True, enc_attn_num_mem_kv=2, dec_attn_num_mem_kv=2)
    pair("F04 F58", masked=True, enc_pre_norm=False, dec_pre_norm=False)
    pair("F04 F67", masked=True, dec_shift_tokens=1, enc_shift_tokens=1)
    pair("F04 F39", dec_attn_kv_heads=2, dec_attn_qk_norm=True, enc_attn_one_kv_head=True)
    pair("F09", src_prepend=3)
    pair("F09", masked=True, src_prepend=3, tie_token_emb=True)
    pair("F09", vit=image())
    pair("F09", masked=True, vit=image())


def context_cases():
    caption("F08")
    caption("F08", masked=True)
    caption("F08", masked=True, cross_attn_dim_context=20)
    caption("F08", only_cross=True)
    caption("F08 F47", masked=True, residual_attn=True, cross_residual_attn=True)
    caption("F08 F64", masked=True, sandwich_norm=True)
    caption("F08", context=image())
    encoder = {"wrapper": "Encoder", **SIZES}
    caption("F08", masked=True, context=encoder)
    stack("F10", "CrossAttender")
    stack("F10", "CrossAttender", masked=True)
    stack("F10", "CrossAttender", masked=True, cross_attn_dim_context=20)
    stack("F10", "CrossAttender", masked=True, context=encoder)
    stack("F10 F30", "CrossAttender", ff_post_act_ln=True, use_rmsnorm=True)
    stack("F01", "Decoder", rotary_pos_emb=True)
    stack("F02", "Encoder", masked=True)
    stack("F08", "Encoder", masked=True, cross_attend=True)


def image_cases():
    vit = functools.partial(wrapped, kind=Image, wrapper="ViTransformerWrapper", type="Encoder",
                            patch_size=4)
    vit("F06", image_size=8, num_classes=5)
    vit("F06", image_size=12, channels=1, num_classes=5, post_emb_norm=True)
    vit("F06", image_size=8, num_classes=5, num_register_tokens=3)
    vit("F06", image_size=8, num_classes=5, stack={"use_rmsnorm": True, "attn_num_mem_kv": 2})
    vit("F07", image_size=8)


def vector_cases():
    vectors = functools.partial(wrapped, kind=Vectors, wrapper="ContinuousTransformerWrapper",
                                max_seq_len=16)
    vectors("F11", dim_in=7, dim_out=12)
    vectors("F11", masked=True, type="Encoder", dim_in=7, dim_out=12)
    vectors("F11", masked=True, type="Encoder", dim_in=7, num_memory_tokens=2)
    vectors("F12", dim_in=7, dim_out=7)
    vectors("F12", masked=True, dim_in=7, dim_out=7)
    vectors("F12", inside="ContinuousAutoregressiveWrapper", dim_in=7, dim_out=7)
    vectors("F12", masked=True, dim_in=7, dim_out=7, post_emb_norm=True, num_memory_tokens=2)
    vectors("F12", use_abs_pos_emb=False, stack={"rotary_pos_emb": True})


def number_cases():
    numbers = functools.partial(wrapped, kind=Numbers, wrapper="XValTransformerWrapper",
                                num_tokens=VOCAB, max_seq_len=16, numerical_token_id=NUMBER)
    numbers("F14 F15")
    numbers("F14 F15", masked=True)
    numbers("F14 F15", tie_embedding=True)
    numbers("F15", inside="XValAutoregressiveWrapper")
    numbers("F14 F50", masked=True, stack={"rotary_pos_emb": True, "ff_glu": True})


def piece_cases():
    pieces = functools.partial(wrapped, kind=Pieces, wrapper="TransformerWrapper",
                               num_tokens=VOCAB, T=23)
    T5, rotary = {"rel_pos_bias": True}, {"rotary_pos_emb": True}
    pieces("F68 F70", max_seq_len=5, max_mem_len=10, stack=T5)
    pieces("F68 F70", max_seq_len=6, max_mem_len=4, stack=T5)
    pieces("F68 F70", max_seq_len=5, max_mem_len=10)
    pieces("F68 F50", max_seq_len=5, max_mem_len=8, stack=rotary)
    pieces("F68 F56", max_seq_len=6, max_mem_len=6, stack={"alibi_pos_bias": True})
    pieces("F69 F70", max_seq_len=5, max_mem_len=10, shift_mem_down=1, stack=T5)
    pieces("F69 F70", max_seq_len=4, max_mem_len=6, shift_mem_down=1,
           stack={**rotary, "attn_kv_heads": 2})
    pieces("F68 F58", max_seq_len=6, max_mem_len=6, stack={"pre_norm": False, **T5})
    pieces("F68 F33", max_seq_len=6, max_mem_len=6, stack={"attn_num_mem_kv": 2, **T5})


for add in (pair_cases, context_cases, image_cases, vector_cases, number_cases, piece_cases):
    add()


# ---- comparing ----------------------------------------------------------------------------------

def theirs(model, kind):
    with torch.no_grad():
        want = kind.outputs(model)
    want["outputs"] = list(want)
    if kind.learns() is None:
        return want
    loss = kind.loss(model)
    names, parameters = zip(*model.named_parameters())
    names = [name.removeprefix("net.") for name in names]
    grads = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return {**want, "loss": loss.detach(), "names": names, **dict(zip(names, grads))}


def compare_outputs(got, want, kind):
    """Where there are no pads of the model's own text."""
    mask = kind.reads().get("mask")
    kept = ... if mask is None else mask
    return worst([(name, far(got[name][kept], want[name][kept])) for name in want["outputs"]])


def forward(side, want, kind, *more):
    got = side.forward(kind.reads(), "--outputs", ",".join(want["outputs"]), *more)
    return compare_outputs(got, want, kind)


def gradient(side, want, kind):
    got = {n.removeprefix("net."): t for n, t in side.gradients(kind.learns()).items()}
    return compare_gradient(got, want)


def tokens(side, model, kind):
    if isinstance(kind, Pieces):
        ours = torch.tensor([side.greedy(row[:START].tolist(), GENERATED + 2) for row in kind.ids])
    else:
        reads = kind.reads()
        own = "tgt" if "tgt" in reads else "ids"
        ours = side.tensors("generate", {**reads, own: reads[own][:, :START]}, "--temperature", "0",
                            "--tokens", str(GENERATED))["tgt"]
    return "tokens", float((ours != kind.generated(model)).sum())


def read_example(side):
    """A folder with fresh weights: the library loads them strictly; the same outputs."""
    with open(f"{side.folder}/config.json") as f:
        config = json.load(f)
    model = load_strictly(side.folder)
    row = SimpleNamespace(config=config, masked=False, T=TOKENS)
    kind = kind_of(config)(row, 1)
    with torch.no_grad():
        want = kind.outputs(model)
    return forward(side, {**want, "outputs": list(want)}, kind)


def written(side, model, want, kind):
    again = there_and_back(side)
    inside = getattr(kind, "inside", False)  # losses around a model are lost on the way
    bad = changed(again, model.net if inside else model)
    if bad:
        return bad, math.inf
    kind.inside = False
    with torch.no_grad():
        got = kind.outputs(again)
    kind.inside = inside
    return compare_outputs(got, want, kind)


def measure(case, seed, programs, work):
    model, kind = x_models.make(case.config, seed), case.kind(case, seed)
    want, sides = theirs(model, kind), []
    for program, dtype in zip(programs, (torch.float32, torch.float64)):
        folder = f"{work}/{dtype}"
        x_models.save(model, case.config, folder, dtype)
        sides.append(Side(program, folder, work))
    one, two = sides
    columns = {"forward": lambda: forward(one, want, kind),
               "forward64": lambda: forward(two, want, kind),
               "written": lambda: written(one, model, want, kind)}
    if kind.learns() is not None:
        columns["gradient"] = lambda: gradient(one, want, kind)
        columns["gradient64"] = lambda: gradient(two, want, kind)
    if kind.causal:
        columns["halves"] = lambda: forward(one, want, kind, "--chunks", str(1 + seed % 8))
    if kind.writes:
        columns["tokens"] = lambda: tokens(one, model, kind)
    return columns


def rows(programs):
    for number, row in enumerate(CASES):
        yield (row.features, row.name,
               lambda work, n=number, c=row: measure(c, 100 + n, programs, work))
