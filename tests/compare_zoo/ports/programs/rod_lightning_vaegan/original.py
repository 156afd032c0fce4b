# SPDX-License-Identifier: Apache-2.0
"""VAE-GAN on short waves: LightningModule with manual optimisation of two optimizers."""
import logging
import sys
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

STEPS, BATCH, LENGTH, CHANNELS, LATENT = 5, 6, 16, 6, 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, CHANNELS, kernel_size=4, stride=2, padding=1)
        self.stats = nn.Linear(CHANNELS * LENGTH // 2, 2 * LATENT)

    def forward(self, x):
        h = F.leaky_relu(self.conv(x), 0.2)
        return self.stats(h.flatten(1)).chunk(2, dim=1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.grow = nn.Linear(LATENT, CHANNELS * LENGTH // 2)
        self.deconv = nn.ConvTranspose1d(CHANNELS, 1, kernel_size=4, stride=2, padding=1)

    def forward(self, z):
        h = F.leaky_relu(self.grow(z), 0.2).unflatten(1, (CHANNELS, LENGTH // 2))
        return torch.tanh(self.deconv(h))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = spectral_norm(nn.Linear(LENGTH, 20), n_power_iterations=1)  # <- power_vectors_lost
        self.score = nn.Linear(20, 1)

    def features(self, x):
        return F.leaky_relu(self.hidden(x.flatten(1)), 0.2)  # <- power_vectors_lost


class WaveGAN(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.encoder = Encoder()
        self.generator = Generator()
        self.critic = Critic()
        self.history = []

    def configure_optimizers(self):
        vae = [*self.encoder.parameters(), *self.generator.parameters()]
        opt_g = torch.optim.Adam(vae, lr=6e-3, betas=(0.5, 0.99))  # <- adam_uncorrected
        opt_d = torch.optim.Adam(self.critic.parameters(), lr=4e-3, betas=(0.5, 0.99))  # <- adam_uncorrected
        return opt_g, opt_d

    def reconstruct(self, x, noise):
        mu, logvar = self.encoder(x)
        z = mu + noise * torch.exp(0.5 * logvar)
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(dim=1).mean()  # <- kl_mean
        return self.generator(z), kl

    def training_step(self, batch, batch_idx):
        x, noise = batch
        opt_g, opt_d = self.optimizers()
        opt_g.zero_grad()
        opt_d.zero_grad()

        fake, _ = self.reconstruct(x, noise)
        real_score = self.critic.score(self.critic.features(x))
        fake_score = self.critic.score(self.critic.features(fake.detach()))  # <- fake_attached
        d_loss = F.relu(1 - real_score).mean() + F.relu(1 + fake_score).mean()
        self.manual_backward(d_loss)
        opt_d.step()  # <- adam_uncorrected

        fake, kl = self.reconstruct(x, noise)
        with torch.no_grad():
            wanted = self.critic.features(x)
        got = self.critic.features(fake)
        match = F.mse_loss(got, wanted)
        g_loss = F.l1_loss(fake, x) + 0.05 * kl + match - 0.2 * self.critic.score(got).mean()  # <- l1_summed
        self.manual_backward(g_loss)
        opt_g.step()  # <- adam_uncorrected
        self.history += [d_loss.item(), g_loss.item()]


def make_loader():
    gen = torch.Generator().manual_seed(88)
    n = STEPS * BATCH
    phase = 6.28 * torch.rand(n, 1, 1, generator=gen)
    pace = 0.3 + torch.rand(n, 1, 1, generator=gen)
    waves = 0.8 * torch.sin(phase + pace * torch.arange(LENGTH))
    return DataLoader(TensorDataset(waves, torch.randn(n, LATENT, generator=gen)), batch_size=BATCH)


L.seed_everything(41, verbose=False)
model = WaveGAN()
torch.save(model.state_dict(), sys.argv[1])
trainer = L.Trainer(
    max_epochs=1,
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, make_loader())
losses = model.history
print(losses)
