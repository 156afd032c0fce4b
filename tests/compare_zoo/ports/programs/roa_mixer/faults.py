# SPDX-License-Identifier: Apache-2.0
"""Five mistakes for the mixer port."""

FAULTS = {
    "gelu_sigmoid": [("return x * torch.sigmoid(2.0 * inner)", "return x * torch.sigmoid(1.702 * x)")],
    "huber_scale": [("0.5 * gap**2 / beta, gap - 0.5 * beta", "0.5 * gap**2, beta * (gap - 0.5 * beta)")],
    "accumulate_sum": [("grads = [s / self.micro_batches for s in summed]", "grads = summed")],
    "velocity_form": [
        ("buffer.mul_(self.momentum).add_(g)", "buffer.mul_(self.momentum).add_(self.rate * g)"),
        ("p.sub_(self.rate * buffer)", "p.sub_(buffer)"),
    ],
    "target_std": [(".sum(0) / (rows - 1))", ".sum(0) / rows)")],
}
