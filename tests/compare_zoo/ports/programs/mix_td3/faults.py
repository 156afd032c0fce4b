# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "action_range": [("mlp(net, s).tanh() * LIMIT", "mlp(net, s).tanh()")],
    "twin_minimum": [(".amin(0)", ".mean(0)")],
    "terminal_mask": [("GAMMA * alive[:, 0] * low", "GAMMA * low")],
    "policy_delay": [("if it % 2 == 1:", "if it % 2 == 0:")],
    "soft_target": [("torch.lerp(a, b, BLEND)", "torch.lerp(b, a, BLEND)")],
}
