# SPDX-License-Identifier: Apache-2.0
"""Double DQN, duelling head, n-step targets from a replay of one long trajectory, RMSprop."""
import sys
import torch
from torch import nn
import torch.nn.functional as F

N, GAMMA, SYNC = 3, 0.95, 2


class Duel(nn.Module):
    def __init__(self, obs=6, hid=24, act=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, hid), nn.ELU(), nn.Linear(hid, hid), nn.ELU())
        self.value = nn.Linear(hid, 1)
        self.adv = nn.Linear(hid, act)

    def forward(self, s):
        h = self.body(s)
        a = self.adv(h)
        return self.value(h) + a - a.mean(dim=1, keepdim=True)  # <- duel


g = torch.Generator().manual_seed(3)
T = 80
S = torch.randn(T, 6, generator=g)
A = torch.randint(0, 4, (T,), generator=g)
R = torch.randn(T, generator=g)
DONE = torch.rand(T, generator=g) < 0.15


def n_step(t):
    """Return, bootstrap index and discount (0 if the episode ended)."""
    ret, disc = 0.0, 1.0
    for k in range(N):
        ret += disc * R[t + k].item()  # <- reach
        disc *= GAMMA
        if DONE[t + k]:  # <- reach
            return ret, t + k, 0.0  # <- reach
    return ret, t + N, disc  # <- boot_index


torch.manual_seed(0)
online, target = Duel(), Duel()
torch.save(online.state_dict(), sys.argv[1])
target.load_state_dict(online.state_dict())
opt = torch.optim.RMSprop(online.parameters(), lr=2e-3, alpha=0.9, eps=1e-3,  # <- rms_decay
                          momentum=0.5)  # <- rms_decay
losses = []
for step in range(5):
    idx = torch.randint(0, T - N, (16,), generator=g)
    ret, boot, disc = zip(*[n_step(int(t)) for t in idx])
    nxt = S[list(boot)]  # <- boot_index
    with torch.no_grad():
        best = online(nxt).argmax(1, keepdim=True)
        y = torch.tensor(ret) + torch.tensor(disc) * target(nxt).gather(1, best).squeeze(1)
    q = online(S[idx]).gather(1, A[idx].unsqueeze(1)).squeeze(1)
    loss = F.smooth_l1_loss(q, y)
    opt.zero_grad()
    loss.backward()
    for p in online.parameters():
        p.grad.clamp_(-0.1, 0.1)
    opt.step()  # <- rms_decay
    if (step + 1) % SYNC == 0:  # <- sync
        target.load_state_dict(online.state_dict())  # <- sync
    losses.append(loss.item())
print(losses)
