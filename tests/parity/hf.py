"""Models against Hugging Face: folders of random GPT-2 and RWKV-4 models, written by either side.

    hf.py DRA [COUNT]

For COUNT configs of each kind (50, seeded): logits, hidden states, loss, the gradient of every
parameter, whole against two halves with the state, greedy tokens; folders that `dra` writes load with
from_pretrained and give the same tensors; checkpoints of torch.save give the same logits. Prints the largest differences relative to the largest
number of each tensor; exits with 1 when one is over its tolerance. Where Hugging Face is wrong nothing
is compared with it: batches of single RWKV tokens after a state, states of RWKV models whose attention
has a width of its own.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from side import Side
    from transformers import GPT2Config, GPT2LMHeadModel, RwkvConfig, RwkvForCausalLM
except ImportError as missing:
    print(f"hf     skipped: {missing}")
    sys.exit(0)

# What fp32 leaves of a whole model's numbers, both sides rounding in their own order.
BARS = {
    "logits": 2e-5,
    "hidden states": 2e-5,
    "attentions": 2e-5,
    "branches": 2e-5,
    "picked": 2e-5,
    "halves": 2e-5,
    "state": 2e-5,
    "loss": 1e-5,
    "gradients": 1e-4,
    "greedy tokens": 0,
    "written": 0,
    "logits of written": 2e-5,
    "torch.save": 0,
}


def gpt2(rng):
    heads = rng.choice([1, 2, 3, 4])
    config = GPT2Config(
        vocab_size=rng.randint(11, 90),
        n_positions=rng.randint(24, 40),
        n_embd=heads * rng.choice([4, 8, 10]),
        n_layer=rng.randint(1, 4),
        n_head=heads,
        n_inner=rng.choice([None, 17, 48]),
        activation_function=rng.choice(["gelu_new", "gelu", "relu"]),
        layer_norm_epsilon=rng.choice([1e-5, 1e-6, 1e-3]),
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        scale_attn_weights=rng.random() < 0.7,
        scale_attn_by_inverse_layer_idx=rng.random() < 0.3,
        tie_word_embeddings=rng.random() < 0.7,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=None,
    )
    config._attn_implementation = "eager"  # the one that shows what it attends to
    return GPT2LMHeadModel(config)


def rwkv(rng):
    width = rng.choice([8, 12, 20, 32])
    config = RwkvConfig(
        vocab_size=rng.randint(11, 90),
        hidden_size=width,
        num_hidden_layers=rng.randint(2, 5),  # of one its first values divide by zero
        attention_hidden_size=rng.choice([None, None, None, width + 4]),
        intermediate_size=rng.choice([None, 13, 2 * width]),
        layer_norm_epsilon=rng.choice([1e-5, 1e-6, 1e-3]),
        rescale_every=rng.choice([0, 1, 2, 6]),
        tie_word_embeddings=rng.random() < 0.3,
        bos_token_id=0,
        eos_token_id=None,
    )
    return RwkvForCausalLM(config)


def shake(model, seed):
    """First values are special (zeros, ramps): every parameter gets something of its own."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=g))


def difference(a, b):
    a, b = a.double(), b.double()
    if a.shape != b.shape:
        return float("inf")
    most = b.abs().max().item() if b.numel() else 0.0
    worst = (a - b).abs().max().item() if b.numel() else 0.0
    return worst / most if most else worst


def names(model):
    """Parameters by the name they have in a file."""
    return {name: p for name, p in model.named_parameters()}


def hidden_states(model, streams, hidden):
    """What dra calls streams, in Hugging Face's list: GPT-2 starts with what is embedded, RWKV with
    what follows layer 0; both end with what the head reads."""
    first = [streams[i] for i in range(len(streams))]
    return (first[:-1] if isinstance(model, GPT2LMHeadModel) else first[1:]) + [hidden]


def rwkv_state(found, layers):
    """The five tensors (B, C, L) of what dra keeps by layer."""
    parts = ["ff.x", "mixer.x", "mixer.A", "mixer.B", "mixer.p"]
    return [torch.stack([found[f"state.layers.{l}.{part}"] for l in range(layers)], -1)
            for part in parts]


def compare(model, side, rng, put):
    config = model.config
    length = rng.randint(6, 20)
    ids = torch.randint(0, config.vocab_size, (2, length), generator=torch.Generator().manual_seed(
        rng.randint(0, 1 << 30)))
    cut = rng.randint(1, length - 1)
    keeps = getattr(config, "attention_hidden_size", None) in (None, config.hidden_size)
    model.eval()
    with torch.no_grad():
        want = model(ids, output_hidden_states=True, use_cache=keeps)
    got = side.forward(ids, "--outputs", "logits,hidden,streams,state")
    put("logits", difference(got["logits"], want.logits))
    mine = hidden_states(model, got["streams"], got["hidden"])
    put("hidden states", max(difference(a, b) for a, b in zip(mine, want.hidden_states, strict=True)))
    if isinstance(model, GPT2LMHeadModel):
        with torch.no_grad():
            maps = model(ids, output_attentions=True).attentions
        shown = side.forward(ids, "--outputs", "attentions")
        for l, weights in enumerate(maps):  # after the tokens is room for more
            found = shown[f"layers.{l}.attention"]
            put("attentions", difference(found[..., :length], weights))
            put("attentions", found[..., length:].abs().sum().item())
    else:
        with torch.no_grad():
            added = model(ids, output_attentions=True, use_cache=False).attentions
        shown = side.forward(ids, "--outputs", "branches", "--chunks", str(cut))["branches"]
        put("branches", max(difference(a, b) for a, b in zip(shown, added, strict=True)))
    picks = [rng.randrange(-length, length) for _ in range(4)]
    with torch.no_grad():
        some = model(ids, logits_to_keep=torch.tensor(picks), use_cache=False).logits
        last = model(ids, logits_to_keep=2, use_cache=False).logits
    text = "--positions=" + ",".join(map(str, picks))
    put("picked", difference(side.forward(ids, text, "--chunks", str(cut))["logits"], some))
    put("picked", difference(side.forward(ids, "--keep", "2")["logits"], last))
    halves = side.forward(ids, "--chunks", str(cut))
    put("halves", difference(halves["logits"], want.logits))
    if isinstance(model, RwkvForCausalLM) and keeps:
        state = rwkv_state(got, config.num_hidden_layers)
        put("state", max(difference(a, b) for a, b in zip(state, want.state, strict=True)))

    prompt = ids[:1, :5]
    with torch.no_grad():
        text = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12,
                              do_sample=False, pad_token_id=0, use_cache=keeps)
    put("greedy tokens", float(side.greedy(prompt[0].tolist(), 12) != text[0, 5:].tolist()))

    model.train()
    model.zero_grad()
    loss = model(ids, labels=ids, use_cache=False).loss
    loss.backward()
    found = side.gradients(ids)
    put("loss", abs(found["loss"].item() - loss.item()) / loss.item())
    most = max(p.grad.abs().max().item() for p in model.parameters())
    for name, p in names(model).items():
        # Relative to the tensor's own largest, but not below what fp32 leaves of the largest of all.
        scale = max(p.grad.abs().max().item(), 1e-3 * most)
        put("gradients", (found[name] - p.grad).abs().max().item() / scale)
    model.eval()


def written(model, side, rng, put):
    """dra's own folder of it, and from there back to one that Hugging Face reads."""
    own, back = f"{side.work}/own", f"{side.work}/back"
    for path in (own, back):
        subprocess.run(["rm", "-rf", path], check=True)
    side.call("convert", "--from", side.folder, "--to", own, "--check", "--threads", "1")
    shards = ["--shard-size", "3KB"] if rng.random() < 0.3 else []
    side.call("convert", "--from", own, "--to", back, "--as", "hf", "--check", "--threads", "1", *shards)
    again, notes = type(model).from_pretrained(back, output_loading_info=True)
    wrong = [key for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if notes[key]]
    if wrong:
        raise RuntimeError(f"from_pretrained: {notes}")
    put("written", max(difference(a, b) for a, b in
                       zip(again.parameters(), type(model).from_pretrained(side.folder).parameters(),
                           strict=True)))
    ids = torch.randint(0, model.config.vocab_size, (1, 9))
    again.eval()
    with torch.no_grad():
        put("logits of written", difference(side.forward(ids)["logits"], again(ids, use_cache=False).logits))


def saved_by_torch(model, side, rng, put):
    """The same weights as torch.save writes them, in either form, whole or in two shards."""
    folder = f"{side.work}/torch"
    state = model.state_dict()
    subprocess.run(["rm", "-rf", folder], check=True)
    os.mkdir(folder)
    shutil.copy(f"{side.folder}/config.json", folder)
    form = {"_use_new_zipfile_serialization": rng.random() < 0.5}
    if rng.random() < 0.5:
        torch.save(state, f"{folder}/pytorch_model.bin", **form)
    else:
        place = {name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(state)}
        for shard in set(place.values()):
            torch.save({n: t for n, t in state.items() if place[n] == shard}, f"{folder}/{shard}",
                       **form)
        with open(f"{folder}/pytorch_model.bin.index.json", "w") as f:
            json.dump({"weight_map": place}, f)
    ids = torch.randint(0, model.config.vocab_size, (1, 9))
    saved = Side(side.dra, folder, side.work).forward(ids)
    put("torch.save", difference(saved["logits"], side.forward(ids)["logits"]))


def run(kind, make, dra, count):
    worst, failed = {}, []
    for i in range(count):
        rng = random.Random(f"{kind} {i}")
        torch.manual_seed(i)
        model = make(rng)
        shake(model, i)
        with tempfile.TemporaryDirectory() as work:
            folder = f"{work}/model"
            shards = "2KB" if i % 5 == 4 else "50GB"
            model.save_pretrained(folder, max_shard_size=shards)
            side = Side(dra, folder, work)

            def put(what, number):
                if not number <= BARS[what]:
                    failed.append(f"{kind} {i}: {what} {number:.3g}, at most {BARS[what]:g} "
                                  f"{json.dumps(model.config.to_diff_dict())}")
                worst[what] = max(worst.get(what, 0.0), number)

            compare(model, side, rng, put)
            written(model, side, rng, put)
            saved_by_torch(model, side, rng, put)
    for what, number in worst.items():
        print(f"hf     {kind:5}  {what:18} {number:9.2e}  of at most {BARS[what]:g}")
    return failed


class Cell(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gru = torch.nn.GRUCell(width, width)
        self.held = None

    def forward(self, x):
        before = torch.zeros_like(x) if self.held is None else self.held
        self.held = 0.97 * before + 0.03 * self.gru(x, before)
        return self.held


class Recurrent(torch.nn.Module):
    """The attention of the ADR demo: the heads share one memory, one after the other, made of the last
    token; every token sees all tokens and its head's memory."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.each = heads, width // heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            torch.nn.Linear(width, width) for _ in range(4))
        self.k_mem, self.v_mem = Cell(self.each), Cell(self.each)

    def split(self, x):
        return x.view(1, -1, self.heads, self.each).transpose(1, 2)

    def longer(self, x, cell):
        held = [cell(x[:, h, -1]) for h in range(self.heads)]
        return torch.cat([x, torch.stack(held, 1).unsqueeze(2)], 2)

    def forward(self, x):
        q, k, v = (self.split(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        k, v = self.longer(k, self.k_mem), self.longer(v, self.v_mem)
        weights = torch.softmax(q @ k.transpose(-1, -2) / self.each**0.5, -1)
        return self.out_proj((weights @ v).transpose(1, 2).reshape(1, -1, self.heads * self.each))


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attn = Recurrent(width, heads)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                       torch.nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Demo(torch.nn.Module):
    def __init__(self, vocab, width, heads, blocks):
        super().__init__()
        self.embed, self.pos_embed = torch.nn.Embedding(vocab, width), torch.nn.Embedding(64, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.ln_f = torch.nn.LayerNorm(width)
        self.lm_head = torch.nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids) + self.pos_embed(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def demo(program):
    """examples/08_gpt2_adr, which computes what the demo computes; both call twice."""
    if not os.path.exists(program):
        print(f"hf     adr    skipped: no {program}")
        return []
    torch.manual_seed(1)
    model, ids = Demo(61, 32, 4, 3), torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5]])
    with tempfile.TemporaryDirectory() as work, torch.no_grad():
        save_file(model.state_dict(), f"{work}/model.safetensors")
        want = torch.cat([model(ids), model(ids)])
        subprocess.run([program, f"{work}/model.safetensors", f"{work}/out.safetensors",
                        *map(str, ids[0].tolist())], check=True, capture_output=True)
        number = difference(load_file(f"{work}/out.safetensors")["logits"], want)
    print(f"hf     adr    logits             {number:9.2e}  of at most {BARS['logits']:g}")
    return [] if number <= BARS["logits"] else [f"adr: logits {number:.3g}"]


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    dra = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    failed = run("gpt2", gpt2, dra, count) + run("rwkv", rwkv, dra, count)
    failed += demo(f"{os.path.dirname(dra)}/examples/08_gpt2_adr")
    for line in failed:
        print(f"hf     FAILED {line}")
    print(f"hf     {count} models of each kind, transformers {transformers.__version__}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
