# SPDX-License-Identifier: Apache-2.0
"""The speech model on (batch, time, channel) frames: strided windows for convolutions, its own CTC recursion."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

STRIDES, POS_KERNEL, POS_GROUPS, HEADS, DEPTH, BLANK = (4, 2, 2), 6, 4, 4, 2, 0


class SpeechNet:
    def __init__(self, checkpoint):
        sd = torch.load(checkpoint)
        self.frozen, self.w = [], {}
        for i in range(len(STRIDES)):
            base = f"wav2vec2.feature_extractor.conv_layers.{i}."
            kernel = sd[base + "conv.weight"].permute(2, 1, 0).flatten(0, 1)
            self.frozen.append(kernel.clone().requires_grad_())
        base = "wav2vec2.feature_extractor.conv_layers.0.layer_norm."
        self.frozen += [sd[base + part].clone().requires_grad_() for part in ("weight", "bias")]
        for name, value in sd.items():
            if "feature_extractor" in name or "masked_spec" in name:
                continue
            short = name.replace("wav2vec2.", "").replace("parametrizations.weight.original", "wn")
            self.w[short] = value.clone().requires_grad_()

    def parameters(self):
        return list(self.w.values()) + self.frozen

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].mT + self.w[name + ".bias"]

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], 1e-5)

    def frames(self, wave):
        x = wave[..., None]
        for i, (kernel, stride) in enumerate(zip(self.frozen, STRIDES)):
            size = kernel.shape[0] // x.shape[-1]
            windows = x.unfold(1, size, stride).mT.flatten(2)
            x = windows @ kernel
            if i == 0:
                var, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
                x = (x - mean) / (var + 1e-5).sqrt() * self.frozen[-2] + self.frozen[-1]
            x = F.gelu(x)
        return x.detach()  # <- thawed

    def places(self, x):
        base = "encoder.pos_conv_embed.conv."
        direction = self.w[base + "wn1"]
        kernel = self.w[base + "wn0"] * direction / direction.square().sum((0, 1), keepdim=True).sqrt()
        before = POS_KERNEL // 2  # <- same_pad
        padded = F.pad(x, (0, 0, before, POS_KERNEL - 1 - before))  # <- same_pad
        windows = padded.unfold(1, POS_KERNEL, 1).unflatten(2, (POS_GROUPS, -1))
        out = torch.einsum("btgik,goik->btgo", windows, kernel.unflatten(0, (POS_GROUPS, -1)))
        return F.gelu(out.flatten(2) + self.w[base + "bias"])

    def attend(self, x, live, name):
        q, k, v = (self.linear(x, f"{name}.{p}_proj").unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in "qkv")
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=live[:, None, None, :])
        return self.linear(out.transpose(1, 2).flatten(2), name + ".out_proj")

    def __call__(self, wave, sizes):
        x = self.frames(wave)
        live = torch.arange(x.shape[1]) < sizes[:, None]
        x = self.linear(self.norm(x, "feature_projection.layer_norm"), "feature_projection.projection")
        x = x * live[..., None]
        x = self.norm(x + self.places(x), "encoder.layer_norm")
        for n in range(DEPTH):
            base = f"encoder.layers.{n}."
            x = self.norm(x + self.attend(x, live, base + "attention"), base + "layer_norm")
            y = F.gelu(self.linear(x, base + "feed_forward.intermediate_dense"))
            x = self.norm(x + self.linear(y, base + "feed_forward.output_dense"), base + "final_layer_norm")
        return self.linear(x, "lm_head").log_softmax(-1)


def ctc(logp, frames, text):
    """Negative log likelihood of one transcript, by the forward recursion over blank-separated letters."""
    path = torch.full((2 * len(text) + 1,), BLANK)
    path[1::2] = text
    skip = torch.zeros(len(path), dtype=torch.bool)
    skip[2:] = (path[2:] != BLANK) & (path[2:] != path[:-2])
    never = torch.tensor(-1e30)
    alpha = torch.where(torch.arange(len(path)) < 2, logp[0, path], never)
    for t in range(1, frames):
        one = F.pad(alpha[:-1], (1, 0), value=-1e30)
        two = torch.where(skip, F.pad(alpha[:-2], (2, 0), value=-1e30), never)
        alpha = torch.logsumexp(torch.stack([alpha, one, two]), 0) + logp[t, path]
    return -torch.logsumexp(alpha[-2:], 0)


class Adam:
    def __init__(self, params, lr=2e-3, betas=(0.9, 0.98), eps=1e-6):
        self.params, self.lr, self.betas, self.eps, self.t = params, lr, betas, eps, 0
        self.m = [torch.zeros_like(p) for p in params]
        self.v = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self, grads):
        self.t += 1
        b1, b2 = self.betas
        rate = self.lr / (1 - b1 ** self.t)  # <- no_correction
        for p, g, m, v in zip(self.params, grads, self.m, self.v):
            if g is None:
                continue
            m.lerp_(g, 1 - b1)
            v.lerp_(g * g, 1 - b2)
            p -= rate * m / ((v / (1 - b2 ** self.t)).sqrt() + self.eps)  # <- no_correction


def read_clips(steps=5, batch=3, samples=240, letters=11):
    g = torch.Generator().manual_seed(40)
    n = steps * batch
    noise = torch.randn(n, samples, generator=g)
    pitch = torch.rand(n, 1, generator=g) * 0.4 + 0.05
    audio = 0.3 * noise + torch.sin(pitch * torch.arange(samples)) + 0.2
    sizes = torch.randint(150, samples + 1, (n,), generator=g)
    text = torch.randint(1, letters, (n, 5), generator=g)
    counts = torch.randint(3, 6, (n,), generator=g)
    for i in range(0, n, batch):
        size = sizes[i:i + batch]
        width = int(size.max())
        on = (torch.arange(width) < size[:, None]).float()
        x = audio[i:i + batch, :width] * on
        mean = x.sum(1, keepdim=True) / on.sum(1, keepdim=True)  # <- norm_padded
        var = ((x - mean) * on).square().sum(1, keepdim=True) / on.sum(1, keepdim=True)  # <- norm_padded
        yield (x - mean) * on * (var + 1e-7).rsqrt(), size, [text[j, :counts[j]] for j in range(i, i + batch)]


net = SpeechNet(sys.argv[1])
optimizer = Adam(net.parameters())
losses = []
for wave, size, texts in read_clips():
    for kernel_size, stride in zip((8, 3, 2), STRIDES):
        size = (size - kernel_size) // stride + 1
    logp = net(wave, size)
    per_clip = [ctc(row, int(s), t) / len(t) for row, s, t in zip(logp, size, texts)]  # <- ctc_by_clip
    loss = torch.stack(per_clip).mean()
    optimizer.step(torch.autograd.grad(loss, optimizer.params, allow_unused=True))
    losses.append(loss.item())
print(losses)
