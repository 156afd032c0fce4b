# SPDX-License-Identifier: Apache-2.0
"""Faults for the LSTM pair."""

FAULTS = {
    # the cell adds a forget bias of 1 to weights that already have theirs
    "forget_bias_twice": [
        ("bias_x[2 * n:3 * n] -= FORGET_BIAS", "bias_x[2 * n:3 * n] -= 0.0"),
    ],
    # every window starts from zeros
    "state_reset": [
        ("state = [(c.detach(), h.detach()) for c, h in state]", "state = model.zero_state(ROWS)"),
    ],
    # the gradient does not pass from one time step to the earlier one
    "detached_steps": [
        ("states[n] = after", "states[n] = tuple(s.detach() for s in after)"),
    ],
    "clip_by_value": [
        ("return [g * torch.clamp(limit / (norm + 1e-6), max=1.0) for g in grads]", "return [torch.clamp(g, -limit, limit) for g in grads]"),
    ],
    # compares with the last validation cost instead of the best
    "plateau_vs_last": [
        ("            self.rate *= 0.25", "            self.best, self.rate = cost, self.rate * 0.25"),
    ],
}
