# SPDX-License-Identifier: Apache-2.0
"""Five mistakes for the residual network port."""

FAULTS = {
    "running_momentum": [
        (
            "old.value = self.keep * old.value + (1 - self.keep) * new",
            "old.value = (1 - self.keep) * old.value + self.keep * new",
        )
    ],
    "norm_epsilon": [("    epsilon = 1e-5", "    epsilon = 1e-3")],
    "stats_detached": [("flat = x.reshape(-1, x.shape[-1])", "flat = x.detach().reshape(-1, x.shape[-1])")],
    "plain_momentum": [("var.value += self.mu * self.velocity[i] - self.rate * g", "var.value += self.velocity[i]")],
    "flip_axis": [("torch.flip(pictures[chosen], dims=(2,))", "torch.flip(pictures[chosen], dims=(3,))")],
}
