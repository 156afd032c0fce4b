# SPDX-License-Identifier: Apache-2.0
"""Faults for the functional DDPM port."""

FAULTS = {
    "gn_groups": [("GROUPS = 4", "GROUPS = 8")],
    "skip_order": [("\"dec1\", torch.cat((h, stack.pop()), 1)", "\"dec1\", torch.cat((stack.pop(), h), 1)")],
    "alpha_bar": [("bar = log_bar.exp().float()", "bar = F.pad(log_bar.exp().float(), (1, -1), value=1.0)")],
    "selfcond_grad": [("        guess = guess.detach()  # <- selfcond_grad\n", "")],
    "adam_bias": [("c1, c2 = 1 - self.b1 ** self.t, 1 - self.b2 ** self.t", "c1, c2 = 1.0, 1.0")],
}
