"""The vocabulary of RWKV World in dra compared with the original tokenizer, which the package rwkv
brings along: the same ids for every letter of Unicode, for random text and random bytes, whole and
in pieces, and the same file back.

    world.py LIBRARY
    world.py --fixture FOLDER    rewrites tests/data/world: entries that its texts meet, and ids
"""
import json
import pathlib
import random
import sys
import tempfile

import dra
import text

try:
    from rwkv import rwkv_tokenizer
except ImportError:
    print("world: skipped, the Python package rwkv is not there")
    sys.exit(0)

FILE = pathlib.Path(rwkv_tokenizer.__file__).with_name("rwkv_vocab_v20230424.txt")
CHECK = "I'll 'd test блабла 以下は、]) -> <|endoftext|><|padding|> int"


def random_bytes(r):
    return bytes(r.choices(range(256), k=r.randrange(40)))


def every_letter(ours, theirs):
    letters = text.letters()
    for c in letters:
        sample = f"a{c}1{c} {c}{c}e{c}\u0301 "
        text.same(sample, ours.encode(sample), theirs.encode(sample))
    return f"{len(letters)} letters"


def random_texts(ours, theirs):
    r, letters, ids = random.Random(text.SEED), text.letters(), 0
    for _ in range(text.TEXTS):
        sample = text.random_text(r, letters)
        expected = theirs.encode(sample)
        text.same(sample, ours.encode(sample), expected)
        text.same(sample, ours.encode(sample, plain=True), expected)
        text.same(sample, ours.decode(expected, False), sample)
        ids += len(expected)
    return f"{text.TEXTS} texts, {ids} ids"


def any_bytes(ours, theirs):
    r = random.Random(text.SEED)
    for _ in range(text.TEXTS):
        sample = random_bytes(r)
        text.same(sample, ours.encode(sample), theirs.encodeBytes(sample))
    return f"{text.TEXTS} texts of any bytes"


def pieces(ours, theirs):
    r, letters = random.Random(text.SEED), text.letters()
    for _ in range(text.CUTS):
        sample = "".join(text.random_text(r, letters) for _ in range(8))
        text.same(sample, ours.in_pieces(sample, r.choice([1, 7, 40, 150])), theirs.encode(sample))
    return f"{text.CUTS} texts in pieces"


def saved_file(ours, theirs):
    with tempfile.TemporaryDirectory() as folder:
        ours.save(pathlib.Path(folder) / FILE.name)
        saved = (pathlib.Path(folder) / FILE.name).read_bytes()
    assert saved == FILE.read_bytes().replace(b"\r\n", b"\n"), "saved otherwise"
    return f"{len(saved)} bytes"


def write_fixture(folder, theirs):
    r, letters = random.Random(text.SEED), text.letters()
    texts = [CHECK] + [text.random_text(r, letters) for _ in range(100)]
    everything = b"\n".join(sample.encode() for sample in texts)
    cases = [json.dumps({"text": t, "ids": theirs.encode(t)}) for t in texts]
    (folder / "cases.json").write_text("[" + ",\n ".join(cases) + "]\n")
    met = {i for i, entry in theirs.idx2token.items() if len(entry) == 1 or entry in everything}
    lines = FILE.read_text().split("\n")[:-1]
    lines = [line for line in lines if int(line.split(" ")[0]) in met]
    (folder / FILE.name).write_text("\n".join(lines) + "\n")


def main():
    theirs, failed = rwkv_tokenizer.TRIE_TOKENIZER(str(FILE)), 0
    if sys.argv[1] == "--fixture":
        return write_fixture(pathlib.Path(sys.argv[2]), theirs)
    ours = text.Tokenizer(dra.Library(sys.argv[1]), FILE)
    for test in (every_letter, random_texts, any_bytes, pieces, saved_file):
        try:
            found = test(ours, theirs)
        except (AssertionError, dra.Error) as error:
            found, failed = f"FAILED: {error}", failed + 1
        print(f"{'rwkv world':<16}{test.__name__:<16}{found}", flush=True)
    ours.destroy()
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
