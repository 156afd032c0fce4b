# SPDX-License-Identifier: Apache-2.0
"""Topic classifier in padded batches of similar length; prints confidence of every text."""
import sys

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

torch.set_num_threads(1)
BATCH = 6


class TopicPipeline:
    def __init__(self, path):
        self.p = torch.load(path, weights_only=True)
        self.dim = self.p["emb.weight"].shape[1]

    @torch.inference_mode()
    def classify_batch(self, batch):
        p = self.p
        ids = pad_sequence(batch, batch_first=True, padding_value=0)
        x = F.embedding(ids, p["emb.weight"])
        s = torch.tanh(F.linear(x, p["mix.weight"], p["mix.bias"])) @ p["score.weight"][0]
        s = (s + p["score.bias"]).masked_fill(ids == 0, float("-inf"))
        pooled = torch.bmm(s.softmax(1)[:, None], x)[:, 0]
        pooled = F.layer_norm(pooled, (self.dim,), p["norm.weight"], p["norm.bias"])
        return F.linear(pooled, p["out.weight"], p["out.bias"])

    def __call__(self, texts):
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        result = torch.empty(len(texts), 6)
        for lo in range(0, len(order), BATCH):
            idx = order[lo:lo + BATCH]
            result[idx] = self.classify_batch([texts[i] for i in idx])
        return result


gen = torch.Generator().manual_seed(110)
lengths = torch.randint(3, 15, (16,), generator=gen).tolist()
texts = [torch.randint(1, 70, (n,), generator=gen) for n in lengths]
topics = torch.randint(0, 6, (16,), generator=gen)

scores = TopicPipeline(sys.argv[1])(texts)
conf, guess = scores.softmax(-1).max(-1)
losses = conf.tolist()
for i, c in enumerate(losses):
    print(f"text {i:2d}: topic {int(guess[i])} ({100 * c:.1f} %)")
print("correct:", int((guess == topics).sum()), "of", len(texts))
print(losses)
