# SPDX-License-Identifier: Apache-2.0
"""Click-through model: user/item/tag embeddings, a GRU over the history, Adagrad."""
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence

torch.set_num_threads(1)

N_USERS, N_ITEMS, N_TAGS, EMB, HID = 20, 30, 12, 8, 12


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_emb = nn.Embedding(N_USERS, EMB)
        self.item_emb = nn.Embedding(N_ITEMS, EMB)
        self.tag_emb = nn.EmbeddingBag(N_TAGS, EMB, mode="mean", padding_idx=0)  # <- tags_mean_over_padding
        self.gru = nn.GRU(EMB, HID, batch_first=True)  # <- gate_order reset_before
        self.fc1 = nn.Linear(3 * EMB + HID, 16)
        self.fc2 = nn.Linear(16, 1)

    def forward(self, user, item, tags, hist, hist_len):
        packed = pack_padded_sequence(  # <- last_step_not_masked
            self.item_emb(hist), hist_len, batch_first=True, enforce_sorted=False)
        _, h = self.gru(packed)  # <- gate_order reset_before last_step_not_masked
        pooled = self.tag_emb(tags)  # <- tags_mean_over_padding
        x = torch.cat([self.user_emb(user), self.item_emb(item), pooled, h[0]], dim=1)
        return self.fc2(F.relu(self.fc1(x))).squeeze(1)


def batches(n, size=16):
    rng = np.random.RandomState(77)
    for _ in range(n):
        user = rng.randint(0, N_USERS, size=size)
        item = rng.randint(0, N_ITEMS, size=size)
        tags = rng.randint(1, N_TAGS, size=(size, 4))
        tags[np.arange(4)[None, :] >= rng.randint(1, 5, size=size)[:, None]] = 0
        hist = rng.randint(1, N_ITEMS, size=(size, 6))
        length = rng.randint(1, 7, size=size)
        click = (rng.rand(size) < 0.3).astype(np.float32)
        yield user, item, tags, hist, length, click


def main():
    torch.manual_seed(9)
    model = ClickModel()
    np.savez(sys.argv[1], **{k: v.numpy() for k, v in model.state_dict().items()})
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05, initial_accumulator_value=1e-3)  # <- accumulator_default
    out = []
    for user, item, tags, hist, length, click in batches(4):
        logit = model(torch.from_numpy(user), torch.from_numpy(item), torch.from_numpy(tags),
                      torch.from_numpy(hist), torch.from_numpy(length))
        loss = F.binary_cross_entropy_with_logits(logit, torch.from_numpy(click))
        opt.zero_grad()
        loss.backward()
        opt.step()  # <- accumulator_default
        out.append(loss.item())
    return out


losses = main()
print(losses)
