# SPDX-License-Identifier: Apache-2.0
"""Streaming recogniser: audio arrives in pieces of 96 samples; every layer keeps the little it
needs from before, and labels are emitted as they come."""
import sys
import torch

PIECE, WIN, SHIFT = 96, 32, 16


class Features:
    def __init__(self, sd):
        get = lambda key: sd["frontend." + key]
        n = torch.arange(WIN, dtype=torch.float64)[:, None]
        k = torch.arange(WIN // 2 + 1, dtype=torch.float64)
        angle = 2 * torch.pi * n * k / WIN
        self.re = (angle.cos() * get("window").double()[:, None]).float()
        self.im = (angle.sin() * get("window").double()[:, None]).float()
        self.bank = get("fbank") / WIN
        self.mean, self.istd = get("cmvn_mean"), 1.0 / get("cmvn_std")
        self.rest, self.prev = torch.zeros(0), torch.zeros(1)

    def push(self, samples):
        shifted = torch.cat((self.prev, samples[:-1]))  # <- preemphasis
        self.prev = samples[-1:]  # <- preemphasis
        buf = torch.cat((self.rest, samples - 0.97 * shifted))  # <- preemphasis
        count = (len(buf) - WIN) // SHIFT + 1
        if count < 1:
            self.rest = buf
            return torch.zeros(0, self.mean.numel())
        frames = torch.stack([buf[i * SHIFT:i * SHIFT + WIN] for i in range(count)])
        self.rest = buf[count * SHIFT:]
        power = (frames @ self.re).square() + (frames @ self.im).square()
        energy = power @ self.bank
        return ((energy + 1e-3).log() - self.mean) * self.istd  # <- floor


class Block:
    def __init__(self, sd, i, dilation):
        self.p = {k[len(f"blocks.{i}."):]: v for k, v in sd.items() if k.startswith(f"blocks.{i}.")}
        self.dilation = dilation
        self.taps = self.p["depthwise.weight"].squeeze(1).T
        self.past = torch.zeros(2 * dilation, self.taps.shape[1])

    def push(self, x):
        p, dim = self.p, x.shape[1]
        h = torch.layer_norm(x, (dim,), p["norm.weight"], p["norm.bias"])
        h = torch.addmm(p["expand.bias"], h, p["expand.weight"].T)
        h = h[:, :dim] * h[:, dim:].sigmoid()  # <- glu
        line = torch.cat((self.past, h))  # <- leftcontext
        self.past = line[len(line) - len(self.past):]  # <- leftcontext
        d, t = self.dilation, len(h)
        y = sum(line[j * d:j * d + t] * self.taps[j] for j in range(3)) + p["depthwise.bias"]
        y = y * y.sigmoid()
        return x + torch.addmm(p["project.bias"], y, p["project.weight"].T)


class Stream:
    def __init__(self, sd):
        self.sd = sd
        self.features = Features(sd)
        self.blocks = [Block(sd, i, i + 1) for i in range(3)]
        self.last, self.labels = 0, []
        self.confidence, self.frames = 0.0, 0

    def push(self, samples):
        x = self.features.push(samples)
        if not len(x):
            return
        x = x @ self.sd["embed.weight"].T + self.sd["embed.bias"]
        for block in self.blocks:
            x = block.push(x)
        logits = x @ self.sd["ctc.weight"].T + self.sd["ctc.bias"]
        top, best = logits.max(1)
        self.confidence += float((top - torch.logsumexp(logits, 1)).sum())
        self.frames += len(x)
        before = torch.cat((torch.tensor([self.last]), best[:-1]))  # <- collapse
        self.labels += best[(best != before) & (best != 0)].tolist()  # <- collapse
        self.last = int(best[-1])  # <- collapse

    def result(self):
        tail = sum(i * label for i, label in enumerate(self.labels, start=1))
        return -self.confidence / self.frames + 0.01 * tail + 0.1 * len(self.labels)


def utterance(seconds, rng):
    n = 32 + 16 * (8 * seconds - 1)
    pitch = torch.linspace(0.02, 0.6, seconds).repeat_interleave(n // seconds + 1)[:n]
    return torch.sin(pitch.cumsum(0)) + 0.1 * torch.randn(n, generator=rng)


state = torch.load(sys.argv[1], weights_only=True)
rng = torch.Generator().manual_seed(13)
losses = []
with torch.inference_mode():
    for seconds in (3, 4, 5, 6):
        stream = Stream(state)
        for piece in utterance(seconds, rng).split(PIECE):
            stream.push(piece)
        losses.append(stream.result())
print(losses)
