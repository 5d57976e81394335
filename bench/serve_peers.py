#!/usr/bin/env python3
"""dra serve and llama-server in turns, on the same GPT-2 of 124 million parameters.

    bench/serve_peers.py --llama LLAMA_SERVER [--dra build/dra] [--work build/serve-peers]
        [--threads 2] [--rounds 7] [--dtype f32,f16] [--dra-options TEXT] [--small]

The model is drawn at random and written as GGUF by dra, for both: 4608 positions, and a tokenizer
that is trained on made-up words. For each --dtype both servers are up, and are asked in turn, each
first every other round: one stream and 16 streams of 128 tokens, the first token of 512 and of 4096
tokens that nobody has read, and how much of a prompt is reused whose first 118 tokens another one
had. Then each alone is asked for two prompts of 4096 tokens, after which its resident peak is read.
--small takes a small model and few tokens, to try the script. Python's standard library only.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time

SHARED = 118


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- the model ----------------------------------------------------------------------------------

def write_words(path, size):
    """Made-up words in many forms, so that a tokenizer finds as many pairs as it wants."""
    draw = random.Random(1)
    letters = "etaoinshrdlcumwfgypbvkjxqz"
    with open(path, "w") as f:
        written = 0
        while written < size:
            word = "".join(letters[min(int(draw.expovariate(0.12)), 25)]
                           for _ in range(draw.randint(2, 11)))
            written += f.write(word + (" " if draw.random() < 0.92 else ".\n"))


def run(*words):
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip()}")


def make_models(dra, work, dtypes, small):
    os.makedirs(work, exist_ok=True)
    name = "small" if small else "gpt2"
    paths = {d: os.path.join(work, f"{name}-{d}.gguf") for d in dtypes}
    if all(os.path.exists(p) for p in paths.values()):
        return paths
    words, tokenizer = os.path.join(work, "words.txt"), os.path.join(work, name + "-tokenizer.json")
    folder = os.path.join(work, name)
    write_words(words, 1 << 20 if small else 24 << 20)
    run(dra, "tokenizer", "train", "--data", words, "--vocab", "2048" if small else "50257",
        "--out", tokenizer)
    run(dra, "init", "--preset", "gpt2-tiny" if small else "gpt2", "--set", "context=4608",
        "--set", f"vocab={2048 if small else 50257}", "--tokenizer", tokenizer, "--out", folder,
        "--force")
    for dtype, path in paths.items():
        run(dra, "convert", "--from", folder, "--to", path, "--dtype", dtype)
    return paths


# ---- servers ------------------------------------------------------------------------------------

class Server:
    def __init__(self, name, words, log):
        self.name, self.port = name, free_port()
        with open(log, "w") as out:
            began = time.perf_counter()
            self.process = subprocess.Popen([*words, "--port", str(self.port)], stdout=out,
                                            stderr=out)
        while not self.ready():
            if self.process.poll() is not None or time.perf_counter() - began > 300:
                self.stop()
                sys.exit(f"{name} did not start: see {log}")
            time.sleep(0.02)
        self.seconds = time.perf_counter() - began

    def ready(self):
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            c.request("GET", "/health")
            return c.getresponse().status == 200
        except OSError:
            return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def memory(self, what):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) / 1024 for line in f if line.startswith(what))

    def stream(self, ids, tokens):
        """Seconds until the first token, seconds of the others, and how many those are."""
        body = {"prompt": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                "stream": True}
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        began = time.perf_counter()
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.status != 200:
            sys.exit(f"{self.name}: {r.status} {r.read().decode()}")
        first = last = None
        for line in r:
            if line.startswith(b"data: ") and b"[DONE]" not in line:
                last = time.perf_counter()
                first = first or last
        return first - began, last - first, tokens - 1

    def cached(self, ids):
        body = {"prompt": ids, "max_tokens": 1, "temperature": 0, "cache_prompt": True}
        if self.name == "dra":
            del body["cache_prompt"]
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        x = json.loads(c.getresponse().read())
        if "timings" in x and "cache_n" in x["timings"]:
            return x["timings"]["cache_n"]
        return x["usage"]["prompt_tokens_details"]["cached_tokens"]


def start(name, args, path, dtype):
    log = os.path.join(args.work, f"{name}-{dtype}.log")
    threads = str(args.threads)
    if name == "dra":
        return Server(name, [args.dra, "serve", "--model", path, "--threads", threads,
                             "--slots", "16", "--max-prompt", "8192",
                             *args.dra_options.split()], log)
    return Server(name, [args.llama, "-m", path, "-t", threads, "-tb", threads, "-np", "16",
                         "-c", str(16 * 4608), "--host", "127.0.0.1", "--no-webui", "--kv-unified"],
                  log)


# ---- what is measured ---------------------------------------------------------------------------

def draw_ids(draw, n, vocab):
    return [draw.randrange(300, vocab) for _ in range(n)]


def one_stream(server, draw, vocab, tokens):
    _, seconds, n = server.stream(draw_ids(draw, 8, vocab), tokens)
    return n / seconds


def many_streams(server, draw, vocab, tokens):
    prompts = [draw_ids(draw, 8, vocab) for _ in range(16)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        began = time.perf_counter()
        list(pool.map(lambda ids: server.stream(ids, tokens), prompts))
        return 16 * tokens / (time.perf_counter() - began)


def reused(server, draw, vocab):
    shared = draw_ids(draw, SHARED, vocab)
    for _ in range(2): # the second one shows where texts part
        server.cached(shared + draw_ids(draw, 12, vocab))
    return server.cached(shared + draw_ids(draw, 12, vocab))


def measure(servers, rounds, vocab, tokens, long):
    found = {s.name: {"1 stream, tokens/s": [], "16 streams, tokens/s": [],
                      "first token of 512, ms": [], f"first token of {long}, ms": [],
                      f"of {SHARED} shared tokens reused": []} for s in servers}
    draw = random.Random(7)
    for i in range(rounds):
        for s in servers if i % 2 == 0 else servers[::-1]:
            x = found[s.name]
            x["1 stream, tokens/s"].append(one_stream(s, draw, vocab, tokens))
            x["16 streams, tokens/s"].append(many_streams(s, draw, vocab, tokens))
            for n in (512, long):
                x[f"first token of {n}, ms"].append(
                    1e3 * s.stream(draw_ids(draw, n, vocab), 2)[0])
            x[f"of {SHARED} shared tokens reused"].append(reused(s, draw, vocab))
        print(f"round {i + 1} of {rounds}", file=sys.stderr, flush=True)
    return found


def measure_memory(name, args, path, dtype, vocab, long):
    server = start(name, args, path, dtype)
    at_start, draw = server.memory("VmRSS"), random.Random(9)
    for _ in range(2):
        server.stream(draw_ids(draw, long, vocab), 16)
    peak = server.memory("VmHWM")
    server.stop()
    return at_start, peak, server.seconds


def show(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def compare(dtype, found, memory):
    print(f"\n| {dtype} | dra | llama-server | better by |\n|---|---|---|---|")
    for what, mine in found["dra"].items():
        theirs = found["llama"][what]
        ratio = statistics.median(mine) / max(statistics.median(theirs), 1e-9)
        better = 1 / ratio if what.endswith("ms") else ratio
        print(f"| {what} | {show(mine)} | {show(theirs)} | {better:.2f} |")
    for i, what in enumerate(("resident at the start, MB", "resident peak, MB", "ready after, s")):
        mine, theirs = memory["dra"][i], memory["llama"][i]
        print(f"| {what} | {mine:.4g} | {theirs:.4g} | {theirs / mine:.2f} |")
    sys.stdout.flush()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("--llama", required=True, help="llama-server, a program")
    p.add_argument("--dra", default="build/dra")
    p.add_argument("--work", default="build/serve-peers", help="folder of models and logs")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--dtype", default="f32,f16")
    p.add_argument("--dra-options", default="", help="more options of dra serve, in one text")
    p.add_argument("--small", action="store_true", help="a small model, to try the script")
    args = p.parse_args()
    dtypes = args.dtype.split(",")
    paths = make_models(args.dra, args.work, dtypes, args.small)
    vocab, tokens, long = (2048, 16, 1024) if args.small else (50257, 128, 4096)
    for dtype, path in paths.items():
        servers = [start(name, args, path, dtype) for name in ("dra", "llama")]
        try:
            found = measure(servers, args.rounds, vocab, tokens, long)
        finally:
            for s in servers:
                s.stop()
        compare(dtype, found, {name: measure_memory(name, args, path, dtype, vocab, long)
                               for name in ("dra", "llama")})


if __name__ == "__main__":
    main()
