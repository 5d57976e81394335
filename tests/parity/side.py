"""A model folder as the command line `dra` reads it; tensors are torch's."""
import json
import subprocess

import torch
from safetensors.torch import load_file, save_file


class Side:
    """One folder, one program; files go to the folder `work`."""

    def __init__(self, dra, folder, work):
        self.dra, self.folder, self.work = dra, folder, work

    def call(self, *words):
        done = subprocess.run([self.dra, *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"dra {words[0]}: {done.stderr.strip()}")
        return done.stdout

    def tensors(self, verb, inputs, *more):
        """What a verb writes for ids, or for several inputs by name."""
        out, file = f"{self.work}/out.safetensors", f"{self.work}/in.safetensors"
        inputs = inputs if isinstance(inputs, dict) else {"ids": inputs}
        save_file({name: (t if t.is_floating_point() else t.to(torch.int32)).contiguous()
                   for name, t in inputs.items()}, file)
        self.call(verb, "--model", self.folder, "--inputs", file, "--out", out, "--threads", "1",
                  *more)
        return load_file(out)

    def forward(self, inputs, *more):
        return self.tensors("forward", inputs, *more)

    def gradients(self, inputs):
        return self.tensors("grad", inputs)

    def greedy(self, ids, n):
        return self.generate(ids, n, "--temperature", "0")[0]

    def generate(self, ids, n, *more):
        """Lists of ids, one for each sample."""
        found = json.loads(self.call(
            "generate", "--model", self.folder, "--prompt-tokens", ",".join(map(str, ids)),
            "--tokens", str(n), "--ignore-end", "--threads", "1", "--json", *more))
        return [sample["tokens"] for sample in found.get("samples", [found])]
