# SPDX-License-Identifier: Apache-2.0
"""OCR engine on a weight dictionary: own GRU, own CTC forward pass, numpy preparation."""
import sys

import numpy as np
import torch
from torch.nn import functional as F

LINE_HEIGHT, LINE_WIDTH, BLANK, LEAK = 16, 32, 0, 0.2


def to_canvas(lines):
    canvas = np.full((len(lines), 1, LINE_HEIGHT, LINE_WIDTH), 255, dtype=np.uint8)  # <- paper
    for slot, line in zip(canvas, lines):
        slot[0, :, : line.shape[1]] = line
    return torch.from_numpy(canvas.astype(np.float32) / np.float32(127.5) - 1)  # <- paper


def leaky(x):
    return torch.maximum(x, LEAK * x)  # <- slope


def columns(w, x):
    """Images to one feature vector for each column: (batch, time, features)."""
    x = leaky(F.conv2d(x, w["cnn.0.weight"], w["cnn.0.bias"], padding=1))
    x = x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2))
    x = F.conv2d(x, w["cnn.3.weight"], w["cnn.3.bias"], padding=1)
    var, mean = torch.var_mean(x, (2, 3), correction=0, keepdim=True)
    x = (x - mean) / (var + 1e-5).sqrt()
    x = leaky(x * w["cnn.4.weight"][:, None, None] + w["cnn.4.bias"][:, None, None])
    x = torch.maximum(x[:, :, 0::2], x[:, :, 1::2])
    x = F.pad(x, (1, 1), value=-torch.inf)  # <- widepool
    x = torch.maximum(x[..., :-1], x[..., 1:])  # <- widepool
    kernel = w["cnn.7.weight"]
    x = torch.stack([x[..., :-1], x[..., 1:]], -1)
    return leaky(torch.einsum("nchtk,fchk->ntf", x, kernel) + w["cnn.7.bias"])


def gru(w, prefix, x, backwards):
    end = "_l0_reverse" if backwards else "_l0"
    wi, wh = w[f"{prefix}.weight_ih{end}"], w[f"{prefix}.weight_hh{end}"]
    bi, bh = w[f"{prefix}.bias_ih{end}"], w[f"{prefix}.bias_hh{end}"]
    order = range(x.shape[1])[::-1] if backwards else range(x.shape[1])
    h, seen = x.new_zeros(len(x), wh.shape[1]), {}
    for t in order:
        ir, iz, inn = (x[:, t] @ wi.T + bi).chunk(3, 1)
        hr, hz, hn = (h @ wh.T + bh).chunk(3, 1)
        r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
        n = torch.tanh(inn + r * hn)  # <- resetgate
        h = n + z * (h - n)  # <- resetgate
        seen[t] = h
    return torch.stack([seen[t] for t in sorted(seen)], 1)


def recognise(w, lines):
    x = columns(w, to_canvas(lines))
    for i in (0, 1):
        x = torch.cat([gru(w, f"rnn.{i}.rnn", x, back) for back in (False, True)], 2)
        x = x @ w[f"rnn.{i}.embedding.weight"].T + w[f"rnn.{i}.embedding.bias"]
    return x - x.logsumexp(2, keepdim=True)


def ctc(logp, text):
    """Negative log-likelihood of one text: the forward pass over blanks and letters."""
    ext = [BLANK]
    for ch in text:
        ext += [ch, BLANK]
    ext = torch.tensor(ext)
    alpha = torch.full((len(ext),), -torch.inf)
    alpha[:2] = logp[0, ext[:2]]
    jump = (ext[2:] != BLANK) & (ext[2:] != ext[:-2])  # <- repeats
    for row in logp[1:, ext]:
        step = F.pad(alpha, (1, 0), value=-torch.inf)[:-1]
        skip = torch.where(jump, alpha[:-2], -torch.inf)  # <- repeats
        skip = F.pad(skip, (2, 0), value=-torch.inf)
        alpha = row + torch.stack([alpha, step, skip]).logsumexp(0)  # <- repeats
    return -torch.logaddexp(alpha[-1], alpha[-2])


def distance(a, b):
    table = np.add.outer(np.arange(len(a) + 1), np.arange(len(b) + 1))
    for i in range(len(a)):
        for j in range(len(b)):
            swap = table[i, j] + (a[i] != b[j])
            table[i + 1, j + 1] = min(table[i, j + 1] + 1, table[i + 1, j] + 1, swap)
    return int(table[-1, -1])


weights = torch.load(sys.argv[1], weights_only=True)
rng = torch.Generator().manual_seed(41)
losses = []
with torch.inference_mode():
    for _ in range(4):
        widths = torch.randint(20, 33, (4,), generator=rng).tolist()
        lines = [torch.randint(0, 256, (LINE_HEIGHT, n), generator=rng, dtype=torch.uint8).numpy()
                 for n in widths]
        sizes = torch.randint(2, 6, (4,), generator=rng).tolist()
        texts = torch.randint(1, 12, (4, 5), generator=rng).tolist()
        total = 0.0
        for logp, width, size, text in zip(recognise(weights, lines), widths, sizes, texts):
            text = (text[:1] * 2 + text[2:])[:size]
            logp = logp[: width // 2]
            best = logp.argmax(1)
            read = [c for c in torch.unique_consecutive(best).tolist() if c != BLANK]
            total += (ctc(logp, text).item() + distance(read, text)) / size
        losses.append(total / 4)
print(losses)
