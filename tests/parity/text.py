"""Tokenizers of dra compared with Hugging Face's: the same ids for every letter of Unicode and for
random text, the same text from random ids, files of one opened by the other, the same merges
learned.

    text.py LIBRARY
    text.py --fixture FOLDER    rewrites tests/data/bpe: a small tokenizer and ids of texts

Tokenizers are trained here; where ../shared/data next to the project, or the folder that
DRA_SHARED_DATA names, has encoder.json and vocab.bpe of GPT-2 or 20B_tokenizer.json of GPT-NeoX,
those are compared as well.
"""
import ctypes
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import unicodedata
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p

import dra

try:
    import tokenizers
    from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
    import text_kinds
except ImportError:
    print("text: skipped, the Python package tokenizers is not there")
    sys.exit(0)

Ids = dra.struct("Ids", data=POINTER(c_int32), n=c_size_t, room=c_size_t)
Training = dra.struct("Training", n=c_int, paths=POINTER(c_char_p), format=c_char_p,
                      text_key=c_char_p, separator=c_char_p, size=c_int32,
                      min_count=c_int64, n_special=c_int, special=POINTER(c_char_p), nfc=c_bool,
                      threads=c_int)
TEXTS, CUTS, SEED = int(os.environ.get("DRA_PARITY_TEXTS", 4000)), 400, 1
KINDS = set()  # names of text_kinds.py
PLAIN, BEGIN, END, REST = 1, 2, 4, 8  # of DRA_ENCODE_
WORDS = ("the The it's I'll DON'T we've 'd 're x1 2024 foo_bar naïve Straße 水 日本語 русский "
         "한국어 עברית हिन्दी e\u0301 a\u0323\u0302 \u1112\u1161\u11ab K\u212a ½ ٣ Ⅷ 👋🏽 — “q” ... "
         "<|endoftext|> <|pad|> <mask> <|endoftext <| ''s '' 'S").split()
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028",
          "", "", " " * 30]


# ---- dra ----------------------------------------------------------------------------------------

class Tokenizer:
    def __init__(self, lib, path):
        self.lib, self.handle = lib, c_void_p()
        lib.c.dra_tokenizer_piece.restype = c_void_p
        lib.c.dra_tokenizer_size.restype = c_int32
        lib.c.dra_encode_cut.restype = c_size_t
        lib.check("tokenizer_open", str(path).encode(), byref(self.handle))
        self.size = lib.call("tokenizer_size", self.handle)

    def save(self, path):
        self.lib.check("tokenizer_save", self.handle, str(path).encode())

    def encode(self, text, how=BEGIN | END):
        ids, data = Ids(), text if isinstance(text, bytes) else text.encode()
        self.lib.check("encode_as", self.handle, c_char_p(data), c_size_t(len(data)), c_int(how),
                       byref(ids))
        result = ids.data[:ids.n]
        self.lib.call("ids_free", byref(ids))
        return result

    def in_pieces(self, text, step):
        """As a file is read: `step` bytes more at a time."""
        ids, left, data, done = [], b"", text.encode(), 0
        for at in range(0, len(data), step):
            left += data[at:at + step]
            cut = self.lib.call("encode_cut", self.handle, c_char_p(left), c_size_t(len(left)))
            ids += self.encode(left[:cut], REST if done else BEGIN) if cut else []
            done, left = done + cut, left[cut:]
        return ids + self.encode(left, REST | END if done else BEGIN | END)

    def decode(self, ids, skip_special):
        decoder, text, n = c_void_p(), c_void_p(), c_size_t()
        self.lib.check("decoder_create", self.handle, c_bool(skip_special), byref(decoder))
        self.lib.call("decoder_start", decoder)
        parts = []
        for i in ids:
            self.lib.check("decoder_push", decoder, c_int32(i), byref(text), byref(n))
            parts.append(ctypes.string_at(text, n.value).decode())  # each a valid text by itself
        self.lib.call("decoder_flush", decoder, byref(text), byref(n))
        parts.append(ctypes.string_at(text, n.value).decode())
        self.lib.call("decoder_destroy", decoder)
        return "".join(parts)

    def has(self, i):
        n = c_size_t()
        return bool(self.lib.call("tokenizer_piece", self.handle, c_int32(i), byref(n)))

    def destroy(self):
        self.lib.call("tokenizer_destroy", self.handle)


# ---- texts --------------------------------------------------------------------------------------

def letters():
    """All that were assigned long ago: tables of the two sides are not of the same year."""
    old = unicodedata.ucd_3_2_0
    return [chr(c) for c in range(0x110000)
            if unicodedata.category(chr(c)) == old.category(chr(c)) not in ("Cn", "Co", "Cs")]


def random_text(r, all_letters):
    parts = []
    for _ in range(r.randrange(12)):
        kind = r.random()
        if kind < 0.6:
            parts.append(r.choice(WORDS))
        elif kind < 0.8:
            parts += r.choices(all_letters, k=r.randrange(6))
        else:
            parts += r.choices("abcXYZ019'<|>- \n\u0301\u0323\u00e9", k=r.randrange(8))
        parts.append(r.choice(SPACES))
    return "".join(parts)


def corpus():
    root = pathlib.Path(__file__).parents[2]
    return [p.read_text() for p in sorted(root.glob("docs/*.md"))] + WORDS * 20


# ---- tokenizers of the other side ---------------------------------------------------------------

def trained(prefix_space, nfc, added, size=1500):
    t = tokenizers.Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    t.decoder = decoders.ByteLevel()
    if nfc:
        t.normalizer = normalizers.NFC()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    t.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    t.add_tokens(added)
    return t


def sources(folder):
    """Name and path of a tokenizer, and the same one in Python."""
    runs = [AddedToken(" " * n, normalized=True) for n in range(2, 25)]
    strips = [AddedToken("<mask>", lstrip=True, normalized=False),
              AddedToken("<|pad|>", rstrip=True, normalized=True), AddedToken("foo_"),
              AddedToken("foo_bar", normalized=True)]
    for name, t in (("as gpt-2", trained(False, False, [])),
                    ("as neox", trained(False, True, runs)),
                    ("added tokens", trained(False, True, strips)),
                    ("prefix space", trained(True, True, strips))):
        path = folder / (name.replace(" ", "-") + ".json")
        t.save(str(path))
        yield name, path, t
    for name, t in text_kinds.kinds():
        KINDS.add(name)
        path = folder / (name + ".json")
        t.save(str(path))
        yield name, path, t
    near = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
    data = pathlib.Path(os.environ.get("DRA_SHARED_DATA", near))
    if (data / "vocab.bpe").exists():
        lines = (data / "vocab.bpe").read_text().split("\n")[1:]
        merges = [tuple(line.split(" ")) for line in lines if line]
        vocab = json.loads((data / "encoder.json").read_text())
        t = tokenizers.Tokenizer(models.BPE(vocab, merges))
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = decoders.ByteLevel()
        t.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
        yield "gpt-2", data, t
    if (data / "20B_tokenizer.json").exists():
        path = data / "20B_tokenizer.json"
        yield "neox-20b", path, tokenizers.Tokenizer.from_file(str(path))


# ---- comparisons --------------------------------------------------------------------------------

def same(what, ours, theirs):
    assert ours == theirs, f"{what!r}: dra {ours}, tokenizers {theirs}"


def every_letter(ours, theirs, all_letters):
    for c in all_letters:
        text = f"a{c}1{c} {c}{c}e{c}\u0301 "
        same(text, ours.encode(text), theirs.encode(text).ids)
    return f"{len(all_letters)} letters"


def every_code(ours, theirs, all_letters):
    """All of Unicode, assigned or not."""
    codes = [chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    for at in range(0, len(codes), 4096):
        texts = [f"a{c}1{c} {c}'{c}!" for c in codes[at:at + 4096]]
        for text, expected in zip(texts, theirs.encode_batch(texts)):
            same(text, ours.encode(text), expected.ids)
    return f"{len(codes)} code points"


def random_texts(ours, theirs, all_letters):
    r, ids = random.Random(SEED), 0
    for _ in range(TEXTS):
        text = random_text(r, all_letters)
        expected = theirs.encode(text).ids
        same(text, ours.encode(text), expected)
        same(text, ours.decode(expected, True), theirs.decode(expected))
        ids += len(expected)
    theirs.encode_special_tokens = True
    for _ in range(TEXTS // 4):
        text = random_text(r, all_letters)
        same(text, ours.encode(text, PLAIN | BEGIN | END), theirs.encode(text).ids)
    theirs.encode_special_tokens = False
    return f"{TEXTS} texts, {ids} ids"


def is_byte(theirs, i):
    """Bytes that are no letter: there, one of them makes a U+FFFD of each byte in the row."""
    return re.fullmatch("<0x[0-9A-F]{2}>", theirs.id_to_token(i) or "")


def random_ids(ours, theirs, all_letters):
    """Most are no valid text."""
    r = random.Random(SEED)
    known = [i for i in range(ours.size) if ours.has(i) and not is_byte(theirs, i)]
    for _ in range(TEXTS):
        ids = r.choices(known, k=r.randrange(9))
        same(ids, ours.decode(ids, False), theirs.decode(ids, skip_special_tokens=False))
    return f"{TEXTS} lists"


def pieces(ours, theirs, all_letters):
    r = random.Random(SEED)
    for _ in range(CUTS):
        text = "".join(random_text(r, all_letters) for _ in range(8))
        same(text, ours.in_pieces(text, r.choice([1, 7, 40, 150])), theirs.encode(text).ids)
    return f"{CUTS} texts in pieces"


def saved_bytes(lib, path):
    """The byte tokenizer as a file: ids are bytes there, too."""
    handle, r, all_letters = c_void_p(), random.Random(SEED), letters()
    lib.check("tokenizer_bytes", byref(handle))
    lib.check("tokenizer_save", handle, str(path).encode())
    lib.call("tokenizer_destroy", handle)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    for _ in range(TEXTS // 4):
        text = random_text(r, all_letters)
        assert theirs.encode(text).ids == list(text.encode()), repr(text)
        assert theirs.decode(list(text.encode())) == text, repr(text)
    print(f"{'bytes':<16}{'saved file':<16}{TEXTS // 4} texts", flush=True)


def compare(lib, name, path, theirs, folder):
    failed, all_letters = 0, letters()
    ours, again = Tokenizer(lib, path), folder / "again.json"
    ours.save(again)
    saved = tokenizers.Tokenizer.from_file(str(again))
    letter = every_code if name in KINDS else every_letter
    for test in (letter, random_texts, random_ids, pieces):
        try:
            found = test(ours, theirs, all_letters)
            if test is random_texts:
                test(ours, saved, all_letters)
                found += ", saved file as well"
        except (AssertionError, dra.Error) as error:
            found, failed = f"FAILED: {error}", failed + 1
        print(f"{name:<16}{test.__name__:<16}{found}", flush=True)
    ours.destroy()
    return failed


# ---- training -----------------------------------------------------------------------------------

def learned(lib, path, documents, size, min_count, special, nfc):
    """The tokenizer.json that dra makes of documents."""
    data, out, handle = path.with_suffix(".jsonl"), path.with_suffix(".json"), c_void_p()
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    config = Training(n=1, paths=(c_char_p * 1)(str(data).encode()), size=size, nfc=nfc,
                      min_count=min_count, n_special=len(special),
                      special=(c_char_p * len(special))(*(text.encode() for text in special)))
    lib.check("tokenizer_train", byref(config), None, None, byref(handle))
    lib.check("tokenizer_save", handle, str(out).encode())
    lib.call("tokenizer_destroy", handle)
    return json.loads(out.read_text())


def learned_there(documents, size, min_count, special, nfc):
    t = tokenizers.Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if nfc:
        t.normalizer = normalizers.NFC()
    t.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=size, min_frequency=min_count, special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return json.loads(t.to_str())


def corpora():
    """Name, documents, size, least count, special tokens, NFC; small ones are full of ties."""
    r, all_letters = random.Random(SEED), letters()
    yield "docs", corpus(), 6000, 1, ["<|end|>", "<|水|>"], False
    yield "docs, NFC", corpus(), 2000, 3, [], True
    yield "letters", [random_text(r, all_letters) for _ in range(TEXTS)], 9000, 1, [], False
    for i in range(100):
        words = ["".join(r.choices("aab'1 \n", k=r.randrange(1, 9))) for _ in range(30)]
        yield "ties", ["".join(words)], 256 + r.randrange(80), r.randrange(1, 4), [], False


def training(lib, folder):
    merges = count = 0
    try:
        for name, *how in corpora():
            ours, theirs = learned(lib, folder / "training", *how), learned_there(*how)
            pairs = [" ".join(m) for m in theirs["model"]["merges"]]
            same(f"{name}, merges", ours["model"]["merges"], pairs)
            same(f"{name}, ids", ours["model"]["vocab"], theirs["model"]["vocab"])
            same(f"{name}, added", [t["content"] for t in ours["added_tokens"]],
                 [t["content"] for t in theirs["added_tokens"]])
            merges, count = merges + len(pairs), count + 1
        found, failed = f"{count} trainings, {merges} merges", 0
    except (AssertionError, dra.Error) as error:
        found, failed = f"FAILED: {error}", 1
    print(f"{'trained':<16}{'merges, ids':<16}{found}", flush=True)
    return failed


def write_fixture(folder):
    runs = [AddedToken(" " * n, normalized=True) for n in range(2, 25)]
    t, r, all_letters = trained(False, True, runs, 900), random.Random(SEED), letters()
    texts = [random_text(r, all_letters) for _ in range(150)]
    t.save(str(folder / "tokenizer.json"), pretty=False)
    cases = [json.dumps({"text": text, "ids": t.encode(text).ids}) for text in texts]
    (folder / "cases.json").write_text("[" + ",\n ".join(cases) + "]\n")


def main():
    failed = 0
    if sys.argv[1] == "--fixture":
        return write_fixture(pathlib.Path(sys.argv[2]))
    print(f"text compared with tokenizers {tokenizers.__version__}, "
          f"Unicode {unicodedata.unidata_version}")
    lib = dra.Library(sys.argv[1])  # dra_real makes no difference
    with tempfile.TemporaryDirectory() as folder:
        saved_bytes(lib, pathlib.Path(folder) / "bytes.json")
        failed += training(lib, pathlib.Path(folder))
        for name, path, theirs in sources(pathlib.Path(folder)):
            failed += compare(lib, name, path, theirs, pathlib.Path(folder))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
