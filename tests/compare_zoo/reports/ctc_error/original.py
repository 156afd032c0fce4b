# SPDX-License-Identifier: Apache-2.0
"""Speech recogniser (convolution plus bidirectional GRU); CTC loss of each batch."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(30)


class Recogniser(nn.Module):
    def __init__(self, mels=10, hid=12, symbols=9):
        super().__init__()
        self.conv = nn.Conv1d(mels, 16, 3, stride=2, padding=1)
        self.bn = nn.BatchNorm1d(16)
        self.gru = nn.GRU(16, hid, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hid, symbols)

    def forward(self, feats):
        x = F.hardtanh(self.bn(self.conv(feats)), 0, 6)
        x, _ = self.gru(x.transpose(1, 2))
        return self.out(x).log_softmax(-1)


asr = Recogniser()
with torch.no_grad():
    asr.bn.running_mean.normal_(0, 0.2)
    asr.bn.running_var.uniform_(0.2, 0.8)
    asr.bn.weight.uniform_(0.6, 1.5)
    asr.bn.bias.normal_(0.2, 0.2)
    for p in asr.gru.parameters():
        p.normal_(0, 0.4)
    asr.out.weight.normal_(0, 1.0)
torch.save(asr.state_dict(), sys.argv[1])
asr.eval()

g = torch.Generator().manual_seed(120)
losses = []
with torch.no_grad():
    for b in range(4):
        feats = torch.randn(3, 10, 24, generator=g)
        target = torch.randint(1, 9, (3, 5), generator=g)
        logp = asr(feats)
        loss = F.ctc_loss(logp.transpose(0, 1), target, [12] * 3, [5] * 3)
        losses.append(loss.item())
        print(f"batch {b}: ctc {losses[-1]:.4f}")
print(losses)
