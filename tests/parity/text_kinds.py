"""Tokenizers in the layouts of model families, made small with Hugging Face's library: the patterns
of Llama 3 and Qwen, single digits, and those of characters (SentencePiece). text.py compares them.

    text_kinds.py FOLDER   rewrites tests/data/tokenizers: one file of each kind with ids of texts
"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

BLOCK = "\u2581"
CASES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?"
ENDS = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
PATTERNS = {
    "llama3": CASES + "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" + ENDS,
    "qwen2": CASES + "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" + ENDS,
    "qwen35": CASES + "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" + ENDS,
}
TEXTS = ["  \n x", "1234", "12 345", "'S", "it'S don'T we'RE", "'\u017f x'\u017f", "a\r\n\r\nb",
         "a \r\n b", "\n\n\n", "!\n\nx", "?!\r\nword", "e\u0301a\u0323\u0302",
         "\u0301x", " \u0301x",
         "!\u0301!", "👋🏽 x 👩‍👩‍👧", "  two  spaces ", "\t\tx", "\u00a0x\u00a0\u00a0y", "x1y22z333",
         "½٣Ⅷ", "x <s>hi", "a<s>b</s> c", " <s> x", "▁x ▁ y", "", " ", "\u2028\u2028x", "don't ''s",
         "foo_bar(x)->y;", "水を飲む 한국어", "<0x0A>", "naïve Straße ŉ ﬆ", "x=1+22;"]


def documents():
    root = pathlib.Path(__file__).parents[2]
    return [p.read_text() for p in sorted(root.glob("docs/*.md"))] + TEXTS * 20


# ---- byte-level ---------------------------------------------------------------------------------

def byte_level(split, nfc, whole, bos, size):
    t = Tokenizer(models.BPE(ignore_merges=whole))
    ids = [] if not bos else ["<|begin_of_text|>", "<|end_of_text|>"]
    if nfc:
        t.normalizer = normalizers.NFC()
    if split == "digits":
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(PATTERNS[split]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(documents(), trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    t.add_special_tokens([AddedToken(x, special=True, normalized=False)
                          for x in ids + ["<|endoftext|>"]])
    if whole:  # a token that merging does not make: the flag is what gives it
        made = json.loads(t.to_str())
        made["model"]["vocab"]["Ġwhole"] = 2 + max(made["model"]["vocab"].values()) + 9
        made["model"]["merges"] = [m for m in made["model"]["merges"] if "".join(m) != "Ġwhole"]
        t = Tokenizer.from_str(json.dumps(made))
    if bos:
        t.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
                special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    return t


# ---- characters ---------------------------------------------------------------------------------

def vocabulary(size, fallback, specials, spaces):
    """Pieces as SentencePiece learns them, by the order of ids, and all ways to merge each."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    t.train_from_iterator(documents(), trainers.BpeTrainer(
        vocab_size=size, show_progress=False, limit_alphabet=150))
    learned = sorted(t.get_vocab(), key=t.token_to_id)
    pieces = [p for p in learned if len(p) > 1] + [BLOCK * n for n in spaces]
    names = specials + ([f"<0x{b:02X}>" for b in range(256)] if fallback else [])
    characters = sorted({c for p in learned for c in p} | {BLOCK})
    vocab = {p: i for i, p in enumerate(names + pieces + characters)}
    merges = []
    for p in pieces:
        ways = [(p[:i], p[i:]) for i in range(1, len(p)) if p[:i] in vocab and p[i:] in vocab]
        merges += sorted(ways, key=lambda w: (vocab[w[0]], vocab[w[1]]))
    return vocab, merges


def characters(layout, fallback=True, fuse=True, bos=True, size=900):
    vocab, merges = vocabulary(size, fallback, ["<unk>", "<s>", "</s>"],
                               () if layout.startswith("metaspace") else (2, 3, 4, 8))
    t = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=fuse,
                             byte_fallback=fallback))
    strip = [decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    if layout == "prepend":      # Llama 2, TinyLlama, Mistral
        t.normalizer = normalizers.Sequence([normalizers.Prepend(BLOCK),
                                             normalizers.Replace(" ", BLOCK)])
    elif layout == "replace":    # Gemma
        t.normalizer = normalizers.Replace(" ", BLOCK)
        t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        strip = [decoders.Fuse()]
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=layout.split("-")[1],
                                                   split=layout.endswith("-split"))
    t.decoder = decoders.Sequence([decoders.Replace(BLOCK, " "), decoders.ByteFallback(), *strip])
    t.add_special_tokens([AddedToken(x, special=True, normalized=False)
                          for x in ("<unk>", "<s>", "</s>")])
    t.add_tokens([AddedToken("<user>", normalized=True), AddedToken("<|end|>", rstrip=True,
                                                                    normalized=False)])
    if bos:
        t.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def kinds(size=1500):
    yield "llama3", byte_level("llama3", False, True, True, size)
    yield "qwen2", byte_level("qwen2", True, False, False, size)
    yield "qwen35", byte_level("qwen35", True, False, False, size)
    yield "digits", byte_level("digits", False, False, False, size)
    yield "prepend", characters("prepend", size=size)
    yield "replace", characters("replace", size=size)
    yield "metaspace-first", characters("metaspace-first", size=size)
    yield "metaspace-always-split", characters("metaspace-always-split", size=size)
    yield "metaspace-never", characters("metaspace-never", fallback=False, size=size)
    yield "unknown", characters("prepend", fallback=False, fuse=False, bos=False, size=size)


# ---- fixtures -----------------------------------------------------------------------------------

def write_fixtures(folder):
    import text
    r, letters = random.Random(text.SEED), text.letters()
    for name, t in kinds(size=600):
        cases = TEXTS + [text.random_text(r, letters) for _ in range(40)]
        made = json.loads(t.to_str())
        made["cases"] = [{"text": x, "ids": t.encode(x).ids,
                          "back": t.decode(t.encode(x).ids)} for x in cases]
        cases = made.pop("cases")
        where = folder / name
        where.mkdir(parents=True, exist_ok=True)
        (where / "tokenizer.json").write_text(json.dumps(made, ensure_ascii=False) + "\n")
        lines = [json.dumps(c, ensure_ascii=True) for c in cases]
        (where / "cases.json").write_text("[" + ",\n ".join(lines) + "]\n")


if __name__ == "__main__":
    write_fixtures(pathlib.Path(sys.argv[1]))
