# SPDX-License-Identifier: Apache-2.0
"""Text-line recognition with a CRNN (convolutions, bidirectional GRU) and CTC."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

CHARS = 12  # class 0 is the blank
HEIGHT = 16


class BidirectionalGRU(nn.Module):
    def __init__(self, n_in, n_hidden, n_out):
        super().__init__()
        self.rnn = nn.GRU(n_in, n_hidden, bidirectional=True)
        self.embedding = nn.Linear(2 * n_hidden, n_out)

    def forward(self, x):
        recurrent, _ = self.rnn(x)  # <- resetgate
        return self.embedding(recurrent)


class CRNN(nn.Module):
    def __init__(self, nh=14):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 8, 3, 1, 1), nn.LeakyReLU(0.2),  # <- slope
            nn.MaxPool2d(2, 2),
            nn.Conv2d(8, 12, 3, 1, 1), nn.InstanceNorm2d(12, affine=True),
            nn.LeakyReLU(0.2),  # <- slope
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),  # keeps the width  # <- widepool
            nn.Conv2d(12, 16, (4, 2), 1, 0), nn.LeakyReLU(0.2),  # <- slope
        )
        self.rnn = nn.Sequential(BidirectionalGRU(16, nh, nh), BidirectionalGRU(nh, nh, CHARS))

    def forward(self, x):
        conv = self.cnn(x)  # <- slope widepool
        b, c, h, w = conv.shape
        assert h == 1
        return self.rnn(conv.squeeze(2).permute(2, 0, 1))  # time, batch, classes


class ResizeNormalize:
    """Grey lines of any width: to one width on the right by repeating, to [-1, 1]."""

    def __init__(self, width):
        self.width = width

    def __call__(self, lines):
        out = []
        for img in lines:
            img = img.float().div(255).sub(0.5).div(0.5)
            pad = torch.full((HEIGHT, self.width - img.shape[1]), 1.0)  # paper is white  # <- paper
            out.append(torch.cat([img, pad], dim=1))  # <- paper
        return torch.stack(out).unsqueeze(1)


def greedy(log_probs):
    """Best path's characters and its score."""
    score, path = log_probs.max(1)
    text, prev = [], 0
    for k in path.tolist():
        if k != 0 and k != prev:
            text.append(k)
        prev = k
    return text, score.sum()


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diag, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diag, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diag + (x != y))
    return row[-1]


torch.manual_seed(0)
crnn = CRNN()
for p in crnn.parameters():
    p.data *= 2.2
with torch.no_grad():
    crnn.cnn[4].weight.uniform_(0.5, 1.5)
    crnn.cnn[4].bias.normal_(0, 0.4)
torch.save(crnn.state_dict(), sys.argv[1])

crnn.eval()
prepare, gen, losses = ResizeNormalize(32), torch.Generator().manual_seed(41), []
with torch.no_grad():
    for _ in range(4):
        widths = torch.randint(20, 33, (4,), generator=gen).tolist()
        lines = [
            torch.randint(0, 256, (HEIGHT, w), generator=gen, dtype=torch.uint8) for w in widths
        ]
        lengths = torch.randint(2, 6, (4,), generator=gen)
        targets = torch.randint(1, CHARS, (4, 5), generator=gen)
        targets[:, 1] = targets[:, 0]  # doubled letters
        log_probs = crnn(prepare(lines)).log_softmax(2)
        steps = torch.tensor([w // 2 for w in widths])
        ctc = F.ctc_loss(log_probs, targets, steps, lengths, reduction="mean")  # <- repeats
        cer = []
        for n in range(4):
            text, _ = greedy(log_probs[: steps[n], n])
            cer.append(edit_distance(text, targets[n, : lengths[n]].tolist()) / int(lengths[n]))
        losses.append(ctc.item() + sum(cer) / 4)
print(losses)
