"""Documentation as lines of JSON: corpus_prose.py FOLDER TO. A document is a file of text, .rst, .txt
or .pod, of 2 KiB and more, in the order of their paths; one in 64 by its path's hash is `test`."""
import gzip
import hashlib
import json
import os
import sys

LEAST = 2048
ENDS = (".rst", ".txt", ".pod", ".dict.dz")


def find_documents(folder):
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(where, name)
            plain = name[:-3] if name.endswith(".gz") else name
            if plain.endswith(ENDS) and not os.path.islink(path):
                yield path


def read_text(path):
    zipped = path.endswith((".gz", ".dz"))
    with (gzip.open if zipped else open)(path, "rb") as file:
        return file.read().decode("utf-8", "replace")


def main(folder, to):
    count = 0
    with open(os.path.join(to, "train.jsonl"), "w", encoding="utf-8") as train, \
            open(os.path.join(to, "test.jsonl"), "w", encoding="utf-8") as test:
        for path in find_documents(folder):
            text = read_text(path)
            if len(text) < LEAST:
                continue
            name = os.path.relpath(path, folder)
            draw = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 64
            file = test if draw == 0 else train
            file.write(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n")
            count += 1
    if not count:
        sys.exit("corpus: prose: the packages have no texts")
    print("corpus: prose: %d documents" % count, file=sys.stderr)


main(*sys.argv[1:3])
