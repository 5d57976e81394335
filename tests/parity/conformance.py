"""One text, read in every way an engine offers: how far each is from reading it whole.

    conformance.py DRA [FAMILY...]

For a few small random models of each family (seeded, f32, one thread) the logits of a text of 100 tokens
are those of reading it whole, by the same engine. Against these, relative to the largest: the text in
chunks, token by token, resumed from a file, packed behind another text in one row, padded before and
after in a batch with a longer one and then continued, rolled back to where 10 other tokens began; and the
engine's whole against a float64 run of transformers. Engines: dra; transformers on its CPU path;
llama.cpp by llama-cpp-python, of GGUF files that dra wrote, where that package is installed. `refused`:
the engine says that it cannot; `crash`: the process ended; `-`: there is no such way. Prints a table in
Markdown with versions.
"""

import copy
import io
import multiprocessing
import os
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
    from fla_models import draw as fla_draw, logits_of as fla_logits, write as fla_write
    from safetensors.torch import load_file, save_file
    from side import Side
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as missing:
    print(f"conformance  skipped: {missing}")
    sys.exit(0)

WAYS = ("float64", "chunks", "steps", "resumed", "packed", "padded", "rolled back")
LENGTH, FIRST, OTHER, MODELS = 100, 41, 10, 3
WORDS = 96

COMMON = dict(vocab_size=WORDS, hidden_size=64, num_hidden_layers=4, intermediate_size=96,
              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
              tie_word_embeddings=False, initializer_range=0.1, bos_token_id=0, eos_token_id=None, pad_token_id=None)
LINEAR = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
DELTA = dict(layer_types=LINEAR, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=32,
             linear_value_head_dim=32, linear_conv_kernel_dim=4)
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
FAMILIES = {
    "llama": COMMON | dict(rope_parameters=ROPE),
    "qwen3_moe": COMMON | dict(head_dim=16, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32,
                               norm_topk_prob=True, rope_parameters=ROPE),
    "qwen3_5_text": COMMON | DELTA | dict(head_dim=32, rope_parameters=ROPE | {
        "partial_rotary_factor": 0.5, "mrope_section": [3, 3, 2]}),
    "qwen3_next": COMMON | DELTA | dict(head_dim=32, mlp_only_layers=[0, 1, 2, 3],
                                        rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
    "olmo_hybrid": COMMON | DELTA | dict(linear_allow_neg_eigval=True, rope_parameters=None),
    "mamba2": dict(vocab_size=WORDS, hidden_size=64, num_hidden_layers=4, num_heads=4, head_dim=32, state_size=16,
                   expand=2, n_groups=1, conv_kernel=4, chunk_size=32, tie_word_embeddings=False,
                   initializer_range=0.1, bos_token_id=0, eos_token_id=None, pad_token_id=None),
    "granitemoehybrid": COMMON | dict(layer_types=LINEAR, num_local_experts=0, shared_intermediate_size=96,
                                      mamba_n_heads=4, mamba_d_state=16, mamba_n_groups=1, position_embedding_type=None,
                                      attention_multiplier=0.25, logits_scaling=1.0),
    "lfm2": COMMON | dict(layer_types=["conv", "conv", "full_attention", "conv"], conv_L_cache=3, norm_eps=1e-5,
                          block_auto_adjust_ff_dim=False, rope_parameters=ROPE),
    "gated_deltanet": dict(model_type="gated_deltanet", vocab_size=WORDS, hidden_size=64, num_hidden_layers=4,
                           intermediate_size=96, num_heads=2, num_v_heads=4, head_dim=32, expand_v=1.0, conv_size=4,
                           norm_eps=1e-6, use_gate=True, allow_neg_eigval=False, tie_word_embeddings=False),
    "delta_net": dict(model_type="delta_net", vocab_size=WORDS, hidden_size=64, num_hidden_layers=4,
                      intermediate_size=96, num_heads=2, expand_k=1.0, expand_v=1.0, conv_size=4, norm_eps=1e-6,
                      use_gate=False, allow_neg_eigval=False, tie_word_embeddings=False),
}
FLA = ("gated_deltanet", "delta_net")
GGUF = ("llama", "qwen3_moe", "qwen3_5_text", "qwen3_next", "mamba2", "granitemoehybrid", "lfm2")


class Refused(Exception):
    """The engine says that it cannot."""


# ---- models -------------------------------------------------------------------------------------

def make(family, seed, folder):
    """A folder; the logits of the text in float64; the model of transformers, or None."""
    ids = torch.randint(0, WORDS, (1, LENGTH + OTHER), generator=torch.Generator().manual_seed(seed))
    if family in FLA:
        tensors = fla_draw(FAMILIES[family], seed)
        fla_write(folder, FAMILIES[family], tensors)
        double = {n: t.double() for n, t in tensors.items()}
        return ids, fla_logits(FAMILIES[family], double, ids[:, :LENGTH])[0], None
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **FAMILIES[family]),
                                             attn_implementation="eager")
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=g))
    model.eval().save_pretrained(folder)
    double = copy.deepcopy(model).double()
    double.config._experts_implementation = "eager"  # its grouped products take no doubles
    with torch.no_grad():
        return ids, double(ids[:, :LENGTH], use_cache=False).logits[0], model


def difference(a, b):
    if a.shape != b.shape:
        return float("inf")
    return ((a.double() - b.double()).abs().max() / b.double().abs().max()).item()


# ---- dra ----------------------------------------------------------------------------------------

class Dra:
    def __init__(self, dra, folder, work):
        self.side, self.work = Side(dra, folder, work), work

    def read(self, ids, *more, mask=None):
        inputs = {"ids": ids} if mask is None else {"ids": ids, "mask": mask}
        return self.side.forward(inputs, *more)["logits"]

    def whole(self, ids):
        return self.read(ids)[0]

    def chunks(self, ids, sizes):
        return self.read(ids, "--chunks", ",".join(map(str, sizes)))[0]

    def steps(self, ids):
        return self.chunks(ids, [1] * ids.shape[1])

    def resumed(self, ids, first):
        state = f"{self.work}/state"
        a = self.read(ids[:, :first], "--state-out", state)
        return torch.cat([a, self.read(ids[:, first:], "--state-in", state)], 1)[0]

    def rolled_back(self, ids, first, other):
        state = f"{self.work}/state"
        a = self.read(ids[:, :first], "--state-out", state)
        self.read(other, "--state-in", state, "--state-out", f"{self.work}/other")
        return torch.cat([a, self.read(ids[:, first:], "--state-in", state)], 1)[0]

    def packed(self, before, ids):
        both = torch.cat([before, ids], 1)
        return self.read(both, "--resets", str(before.shape[1]))[0, before.shape[1]:]

    def padded(self, ids, first, left):
        """The text's first tokens beside a longer row, then the rest of both."""
        T, state = ids.shape[1], f"{self.work}/state"
        pads = torch.zeros(1, T - first, dtype=ids.dtype)
        row = torch.cat([pads, ids[:, :first]] if left else [ids[:, :first], pads], 1)
        mask = torch.cat([row * 0, row * 0 + 1])
        mask[0, -first:] = 1
        if not left:
            mask[0] = mask[0].flip(0)
        a = self.read(torch.cat([row, ids]), "--state-out", state, mask=mask.int())
        b = self.read(torch.cat([ids[:, first:]] * 2), "--state-in", state)
        return torch.cat([a[0, -first:] if left else a[0, :first], b[0]])


# ---- transformers -------------------------------------------------------------------------------

class Transformers:
    def __init__(self, model):
        self.model = model
        self.key = "cache_params" if model.config.model_type == "mamba2" else "past_key_values"

    @torch.no_grad()
    def read(self, ids, cache=None, **more):
        found = self.model(ids, use_cache=True, **({self.key: cache} if cache is not None else {}), **more)
        return found.logits, getattr(found, self.key)

    @torch.no_grad()
    def whole(self, ids):
        return self.model(ids, use_cache=False).logits[0]

    def chunks(self, ids, sizes):
        cache, parts, at = None, [], 0
        for n in [*sizes, ids.shape[1] - sum(sizes)]:
            if n > 0:
                y, cache = self.read(ids[:, at:at + n], cache)
                parts.append(y[0])
                at += n
        return torch.cat(parts)

    def steps(self, ids):
        return self.chunks(ids, [1] * ids.shape[1])

    def resumed(self, ids, first):
        a, cache = self.read(ids[:, :first])
        file = io.BytesIO()
        torch.save(cache, file)
        file.seek(0)
        b, _ = self.read(ids[:, first:], torch.load(file, weights_only=False))
        return torch.cat([a, b], 1)[0]

    def rolled_back(self, ids, first, other):
        a, cache = self.read(ids[:, :first])
        for layer in cache.layers:  # as its assisted generation prepares and asks
            if hasattr(layer, "activate_past_recording"):
                layer.activate_past_recording()
            if not getattr(layer, "is_croppable", True):
                raise Refused
        _, cache = self.read(other, cache)
        try:
            cache.crop(-other.shape[1])
        except (RuntimeError, ValueError, NotImplementedError, AttributeError) as error:
            raise Refused from error
        b, _ = self.read(ids[:, first:], cache)
        return torch.cat([a, b], 1)[0]

    def packed(self, before, ids):
        """As its collator without padding says it: positions start over."""
        positions = torch.cat([torch.arange(before.shape[1]), torch.arange(ids.shape[1])])[None]
        more = {} if self.model.config.model_type == "mamba2" else {"position_ids": positions}
        with torch.no_grad():
            found = self.model(torch.cat([before, ids], 1), use_cache=False, **more)
        return found.logits[0, before.shape[1]:]

    def padded(self, ids, first, left):
        T = ids.shape[1]
        pads = torch.zeros(1, T - first, dtype=ids.dtype)
        row = torch.cat([pads, ids[:, :first]] if left else [ids[:, :first], pads], 1)
        mask = torch.cat([row * 0, row * 0 + 1])
        mask[0, -first:] = 1
        if not left:
            mask[0] = mask[0].flip(0)
        longer = torch.cat([mask, torch.ones(2, T - first, dtype=mask.dtype)], 1)
        at = (longer.cumsum(1) - 1).clamp(min=0)  # as its generate() counts them
        told = self.key == "past_key_values"
        more = {"position_ids": at[:, :T]} if told else {}
        a, cache = self.read(torch.cat([row, ids]), attention_mask=mask, **more)
        more = {"position_ids": at[:, T:]} if told else {}
        b, _ = self.read(torch.cat([ids[:, first:]] * 2), cache, attention_mask=longer, **more)
        return torch.cat([a[0, -first:] if left else a[0, :first], b[0]])


# ---- llama.cpp ----------------------------------------------------------------------------------

def say_no_tokenizer(path):
    """llama.cpp wants to be told that a file has no tokenizer; offsets stay multiples of 32."""
    def pair(key, value):
        return (len(key).to_bytes(8, "little") + key + (8).to_bytes(4, "little") +
                len(value).to_bytes(8, "little") + value)
    with open(path, "rb") as f:
        data = f.read()
    more = pair(b"tokenizer.ggml.model", b"none")
    more += pair(b"general.name", b"-" * (-(len(more) + 32) % 32))
    count = int.from_bytes(data[16:24], "little") + 2
    with open(path, "wb") as f:
        f.write(data[:16] + count.to_bytes(8, "little") + more + data[24:])


class LlamaCpp:
    """By its C interface; every way begins with an empty context."""

    def __init__(self, path):
        import llama_cpp
        self.l = llama_cpp
        self.quiet = llama_cpp.llama_log_callback(lambda *_: None)  # as long as the library lives
        llama_cpp.llama_log_set(self.quiet, None)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise Refused

    def context(self, rows=1, kept=0):
        """kept: how many tokens recurrent states can be rolled back, which is an experiment there."""
        p = self.l.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max, p.n_threads, p.n_threads_batch = 1024, 512, 512, rows, 1, 1
        p.type_k = p.type_v = 0  # f32
        p.flash_attn_type, p.n_rs_seq = 0, kept
        return self.l.llama_init_from_model(self.model, p)

    def decode(self, context, ids, first, row=0):
        n = ids.shape[1]
        batch = self.l.llama_batch_init(n, 0, 1)
        batch.n_tokens = n
        for i, token in enumerate(ids[0].tolist()):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, first + i, 1
            batch.seq_id[i][0], batch.logits[i] = row, True
        status = self.l.llama_decode(context, batch)
        self.l.llama_batch_free(batch)
        if status:
            raise Refused
        return torch.tensor([[self.l.llama_get_logits_ith(context, i)[k] for k in range(WORDS)]
                             for i in range(n)])

    def chunks(self, ids, sizes):
        context, parts, at = self.context(), [], 0
        for n in [*sizes, ids.shape[1] - sum(sizes)]:
            if n > 0:
                parts.append(self.decode(context, ids[:, at:at + n], at))
                at += n
        self.l.llama_free(context)
        return torch.cat(parts)

    def whole(self, ids):
        return self.chunks(ids, [])

    def steps(self, ids):
        return self.chunks(ids, [1] * ids.shape[1])

    def resumed(self, ids, first):
        context = self.context()
        a = self.decode(context, ids[:, :first], 0)
        size = self.l.llama_state_get_size(context)
        state = (self.l.ctypes.c_uint8 * size)()
        self.l.llama_state_get_data(context, state, size)
        self.l.llama_free(context)
        context = self.context()
        self.l.llama_state_set_data(context, state, size)
        b = self.decode(context, ids[:, first:], first)
        self.l.llama_free(context)
        return torch.cat([a, b])

    def rolled_back(self, ids, first, other):
        """As speculation does it: the others in one batch with the token before them."""
        context = self.context(kept=other.shape[1])
        a = self.decode(context, ids[:, :first - 1], 0)
        both = self.decode(context, torch.cat([ids[:, first - 1:first], other], 1), first - 1)
        a = torch.cat([a, both[:1]])
        if not self.l.llama_memory_seq_rm(self.l.llama_get_memory(context), 0, first, -1):
            raise Refused
        b = self.decode(context, ids[:, first:], first)
        self.l.llama_free(context)
        return torch.cat([a, b])

    def packed(self, before, ids):
        """Two sequences in one batch, as it packs them."""
        context, n, m = self.context(2), before.shape[1], ids.shape[1]
        batch = self.l.llama_batch_init(n + m, 0, 1)
        batch.n_tokens = n + m
        for i, token in enumerate([*before[0].tolist(), *ids[0].tolist()]):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i if i < n else i - n, 1
            batch.seq_id[i][0], batch.logits[i] = int(i >= n), True
        if self.l.llama_decode(context, batch):
            raise Refused
        y = torch.tensor([[self.l.llama_get_logits_ith(context, n + i)[k] for k in range(WORDS)] for i in range(m)])
        self.l.llama_free(context)
        return y

    padded = None  # its batches have no pads


# ---- the table ----------------------------------------------------------------------------------

def measure(engine, ids, want):
    """The largest difference of every way, or a word."""
    text, other = ids[:, :LENGTH], ids[:, LENGTH:]
    found = {}

    def put(way, make_logits, against):
        try:
            found[way] = difference(make_logits(), against)
        except Refused:
            found[way] = "refused"
    try:
        whole = engine.whole(text)
    except Refused:
        return {way: "refused" for way in WAYS}
    put("float64", lambda: whole, want)
    put("chunks", lambda: engine.chunks(text, [FIRST, 7, 3]), whole)
    put("steps", lambda: engine.steps(text), whole)
    put("resumed", lambda: engine.resumed(text, FIRST), whole)
    put("packed", lambda: engine.packed(other, text), whole)
    put("rolled back", lambda: engine.rolled_back(text, FIRST, other), whole)
    if engine.padded is None:
        found["padded"] = "-"
        return found
    put("padded", lambda: engine.padded(text, FIRST, True), whole)
    before = found["padded"]
    put("padded", lambda: engine.padded(text, FIRST, False), whole)
    found["padded"] = before, found["padded"]
    return found


def measure_llama(path, ids, want, send):
    try:
        send.send(measure(LlamaCpp(path), ids, want))
    except Refused:
        send.send({way: "refused" for way in WAYS})


def in_a_process(path, ids, want):
    """llama.cpp ends the process where an assertion fails."""
    receive, send = multiprocessing.Pipe(False)
    child = multiprocessing.get_context("spawn").Process(target=measure_llama, args=(path, ids, want, send))
    child.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        return {way: "crash" for way in WAYS}
    finally:
        child.join()


def worse(a, b):
    if isinstance(a, tuple):
        return tuple(map(worse, a, b))
    return a if isinstance(a, str) else b if isinstance(b, str) else max(a, b)


def word(x):
    if isinstance(x, tuple):
        return " / ".join(map(word, x))
    return x if isinstance(x, str) else "0" if x == 0 else f"{x:.0e}".replace("e-0", "e-")


def engines_of(family, model, dra, folder, work, ids, want):
    yield "dra", measure(Dra(dra, folder, work), ids, want)
    if model is not None:
        yield "transformers", measure(Transformers(model), ids, want)
    if family in GGUF and LLAMA_CPP:
        path = f"{work}/model.gguf"
        subprocess.run([dra, "convert", "--from", folder, "--to", path], check=True, capture_output=True)
        say_no_tokenizer(path)
        yield "llama.cpp", in_a_process(path, ids, want)


def version_of_llama_cpp():
    try:
        import llama_cpp
        return llama_cpp.__version__
    except (ImportError, OSError):
        return None


LLAMA_CPP = version_of_llama_cpp()


def mend(model, folder):
    """transformers saves the convolutions of OLMo Hybrid in three equal parts, whatever their channels."""
    if model is None or model.config.model_type != "olmo_hybrid":
        return
    file = f"{folder}/model.safetensors"
    tensors = load_file(file)
    for name, conv in model.named_parameters():
        if name.endswith("conv1d.weight"):
            own = model.get_submodule(name.removesuffix(".conv1d.weight"))
            for c, part in zip("qkv", conv.detach().split([own.key_dim, own.key_dim, own.value_dim])):
                tensors[name.replace("conv1d", f"{c}_conv1d")] = part.contiguous()
    save_file(tensors, file, {"format": "pt"})


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    dra = os.path.abspath(sys.argv[1])
    number = subprocess.run([dra, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    print(f"{number}; transformers {transformers.__version__} with torch {torch.__version__}; "
          f"llama-cpp-python {LLAMA_CPP or 'not installed'}\n")
    print("| family | engine | " + " | ".join(WAYS) + " |")
    print("|---|---|" + "---|" * len(WAYS))
    bad = []
    for family in sys.argv[2:] or FAMILIES:
        rows = {}
        for seed in range(MODELS):
            with tempfile.TemporaryDirectory() as work:
                folder = f"{work}/model"
                ids, want, model = make(family, seed, folder)
                mend(model, folder)
                for engine, found in engines_of(family, model, dra, folder, work, ids, want):
                    rows[engine] = {w: worse(rows[engine][w], found[w]) for w in WAYS} if engine in rows else found
        for engine, found in rows.items():
            print(f"| `{family}` | {engine} | " + " | ".join(word(found[w]) for w in WAYS) + " |", flush=True)
        worst = [x for w in WAYS for x in (rows["dra"][w] if isinstance(rows["dra"][w], tuple) else (rows["dra"][w],))]
        if not all(isinstance(x, float) and x <= 2e-4 for x in worst):
            bad.append(family)
    if bad:
        print(f"conformance  FAILED  dra is over 2e-4: {', '.join(bad)}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
