"""RFCs as lines of JSON: corpus_rfc.py FOLDER TO. Pages' heads and feet go, as do notices that every
RFC has; documents of 8 KiB and more are split by their families, joined by `obsoletes`."""
import gzip
import hashlib
import json
import os
import re
import sys

LEAST = 8192
HEAD = re.compile(r"RFC \d+ .*\d{4}")
FOOT = re.compile(r"\[Page \w+\]\s*$")
NOTICE = re.compile(r"(Status of [Tt]his [Mm]emo|Copyright Notice|Full Copyright Statement|"
                    r"Intellectual Property( Statement)?)\s*$")


def find_files(folder):
    texts, facts = {}, {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            text = re.fullmatch(r"rfc(\d+)\.txt(\.gz)?", name)
            fact = re.fullmatch(r"rfc(\d+)\.json", name)
            if os.path.islink(path) or not (text or fact):
                continue
            (texts if text else facts).setdefault(int((text or fact)[1]), path)
    return texts, facts


def read_text(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\ufeff", "")


def is_furniture(line):
    return bool(FOOT.search(line)) or (len(line) > 60 and bool(HEAD.fullmatch(line)))


def drop_notices(lines):
    """A notice ends where the next line stands at the left edge."""
    inside = False
    for line in lines:
        if line and not line[0].isspace():
            inside = bool(NOTICE.match(re.sub(r"^[\d.]+\s+", "", line)))
        if not inside:
            yield line


def clean(text):
    lines = (line.replace("\f", "").rstrip() for line in text.split("\n"))
    lines = drop_notices([line for line in lines if not is_furniture(line)])
    text = "\n".join(re.sub(r"^   (?=\S| )", "", line) for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def find_families(facts):
    parent = {}

    def root(n):
        while parent.get(n, n) != n:
            n = parent[n]
        return n

    for n, path in facts.items():
        try:
            with open(path, encoding="utf-8") as file:
                about = json.load(file)
        except (OSError, ValueError):
            continue
        for key in ("obsoletes", "obsoleted_by"):
            for name in about.get(key) or []:
                other = re.search(r"RFC\s*0*(\d+)", str(name))
                if other:
                    parent[root(n)] = root(int(other[1]))
    return root


def split_of(family):
    draw = int(hashlib.sha256(b"rfc-family-%d" % family).hexdigest(), 16) % 1000
    return "valid" if draw < 8 else "test" if draw < 16 else "train"


def main(folder, to):
    texts, facts = find_files(folder)
    if not texts:
        sys.exit("corpus: rfc: the packages have no RFCs")
    root, count = find_families(facts), {"train": 0, "valid": 0, "test": 0}
    files = {s: open(os.path.join(to, s + ".jsonl"), "w", encoding="utf-8") for s in count}
    for n in sorted(texts):
        text, split = clean(read_text(texts[n])), split_of(root(n))
        if len(text) < LEAST:
            continue
        files[split].write(json.dumps({"id": "rfc%d" % n, "text": text}, ensure_ascii=False) + "\n")
        count[split] += 1
    for file in files.values():
        file.close()
    print("corpus: rfc: documents", count, file=sys.stderr)


main(*sys.argv[1:3])
