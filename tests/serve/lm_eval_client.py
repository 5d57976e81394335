"""lm-eval's client for completions against a running server, and `dra eval` on the same text:
lm_eval_client.py URL DRA FOLDER, where the model is served by the name of its folder. Prints TAP
lines."""
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI
except ImportError as e:
    print(f"ok 1 - lm-eval # SKIP the package lm-eval is not installed: {e}\n1..1")
    sys.exit(0)

url, dra, folder = sys.argv[1:4]
done = bad = 0


def check(name, well, found=""):
    global done, bad
    done += 1
    bad += not well
    print(f"{'ok' if well else 'not ok'} {done} - {name}{'' if well else f' # {found}'}")


class Bytes:
    """Tokens are the bytes of a text, as the server has them."""
    eos_token_id = bos_token_id = 10
    eos_token = bos_token = "\n"

    def encode(self, text, add_special_tokens=False, **_):
        return list(text.encode())

    def decode(self, ids, **_):
        return bytes(ids).decode()


class Client(LocalCompletionsAPI):
    """The tokenizer is given, as a download of one is not; everything else is lm-eval's own."""

    def __init__(self, **given):
        super().__init__(tokenizer_backend=None, **given)
        self.tokenizer = Bytes()
        self.tokenizer_backend = "huggingface"
        self.tokenized_requests = True

    def tok_encode(self, string, left_truncate_len=None, add_special_tokens=False, **_):
        if isinstance(string, str):
            return list(string.encode())
        return [list(s.encode()) for s in string]

    @property
    def eot_token_id(self):
        return 10


client = Client(base_url=url + "/v1/completions", model=os.path.basename(folder), max_length=2048,
                batch_size=4, max_retries=1, num_concurrent=1)
texts = [("The cat sat on the", " mat"), ("Once upon a", " time there was"), ("2 + 2 =", " 4"),
         ("abc", "defghijkl"), ("The sky is", " blue"), ("The sky is", " green")]
requests = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(texts)]
scores = client.loglikelihood(requests)
check("a score for each", len(scores) == len(texts), scores)

def by_dra_eval(text, first):
    """The sum of log-probabilities of all bytes from `first` on."""
    with tempfile.TemporaryDirectory() as scratch:
        data, out = os.path.join(scratch, "text"), os.path.join(scratch, "tokens.jsonl")
        with open(data, "w") as f:
            f.write(text)
        subprocess.run([dra, "eval", "--model", folder, "--data", data, "--data-format", "text",
                        "--per-token", out], check=True, capture_output=True)
        with open(out) as f:
            each = [json.loads(line)["logprob"] for line in f]
    return sum(each[first - 1:])  # the first token is not predicted


for (context, end), (score, _) in zip(texts, scores):
    own = by_dra_eval(context + end, len(context))
    check(f"{end!r}: as dra eval to 1e-6", abs(own - score) <= 1e-6 * max(1, abs(own)),
          f"{score} {own}")

story = "There was a king who had three sons. " * 12
rolling = client.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (story,), 0)])
own = by_dra_eval("\n" + story, 1)  # lm-eval begins with the end of text, here a new line
check("a whole text: as dra eval to 1e-6", abs(own - rolling[0]) <= 1e-6 * abs(own),
      f"{rolling[0]} {own}")
print(f"1..{done}")
sys.exit(bad > 0)
