"""dra.hf: transformers' own generation over models of dra writes what dra writes."""
import unittest


import dra
from common import SMALL, TEXT, Case

try:
    import torch
    import transformers
    import dra.hf as H
except ImportError:
    transformers = None


@unittest.skipIf(transformers is None, "no transformers")
class Models(Case):
    def setUp(self):
        self.path = self.folder() + "/model"
        self.m = dra.load("dra-delta-tiny", seed=2, set=SMALL)
        self.m.save(self.path)
        self.h = transformers.AutoModelForCausalLM.from_pretrained(self.path)
        self.ids = torch.tensor(self.m.tokenizer.encode("Once upon a time"))[None].long()

    def test_generates_what_dra_does(self):
        out = self.h.generate(self.ids, max_new_tokens=12, do_sample=False)
        mine = self.m.generate(self.ids[0].int(), tokens=12, temperature=0, ignore_end=True)
        self.assertEqual(out[0, 16:].tolist(), mine.tolist())
        both = torch.cat([self.ids, self.ids.flip(1)])
        rows = self.h.generate(both, max_new_tokens=7, do_sample=False)
        for b in range(2):
            alone = self.h.generate(both[b:b + 1], max_new_tokens=7, do_sample=False)
            self.assertEqual(rows[b].tolist(), alone[0].tolist())

    def test_the_cache_is_a_state(self):
        whole = self.h(self.ids).logits
        first = self.h(self.ids[:, :7])
        self.assertEqual(first.past_key_values.state.tokens, 7)
        rest = self.h(self.ids[:, 7:], past_key_values=first.past_key_values)
        self.near(torch.cat([first.logits, rest.logits], 1), whole, 1e-5)
        self.same(whole[0].numpy(), self.m(self.ids[0].int()).logits)

    def test_losses(self):
        loss = float(self.h(self.ids, labels=self.ids).loss)
        self.assertAlmostEqual(loss, -self.m.score("Once upon a time").logprobs.mean(), 4)

    def test_pipelines(self):
        room = self.folder()
        with open(room + "/text", "w") as f:
            f.write(TEXT * 20)
        words = dra.tokenizer.train([room + "/text"], 300, special=["<|endoftext|>"])
        dra.load("dra-delta-tiny", tokenizer=words, set={"vocab": 300, **SMALL}).save(room + "/m")
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=room + "/m/tokenizer.json")
        write = transformers.pipeline("text-generation", tokenizer=tokenizer,
                                      model=H.from_pretrained(room + "/m"))
        text = write("Once upon", max_new_tokens=6, do_sample=False)[0]["generated_text"]
        self.assertTrue(text.startswith("Once upon"))
        self.assertEqual(text[9:], dra.load(room + "/m").generate("Once upon", tokens=6,
                                                                  temperature=0))

    def test_presets_and_files(self):
        h = H.from_pretrained("rwkv4-tiny", seed=3)
        self.assertEqual(h(self.ids).logits.shape, (1, 16, 256))
        h.save_pretrained(self.path)
        self.same(dra.load(self.path)("x").logits, h.dra("x").logits)

    def test_folders_are_those_of_transformers(self):
        """What m.save writes as "hf" opens there as a class of its own."""
        m = dra.load("gpt2-tiny", seed=3)
        m.save(self.path + "-gpt2", format="hf")
        theirs = transformers.AutoModelForCausalLM.from_pretrained(self.path + "-gpt2").eval()
        self.assertEqual(type(theirs).__name__, "GPT2LMHeadModel")
        with torch.no_grad():
            self.near(theirs(self.ids).logits[0].numpy(), m(self.ids[0].int()).logits, 1e-5)

    def test_refused(self):
        mask = torch.ones_like(self.ids)
        mask[0, 0] = 0
        self.refuses(ValueError, "padding", self.h, self.ids, attention_mask=mask)
        self.refuses(ValueError, "from_pretrained", H.DraForCausalLM(H.DraConfig()), self.ids)
        self.refuses(IndexError, "255", self.h, torch.tensor([[999]]))


if __name__ == "__main__":
    unittest.main()
