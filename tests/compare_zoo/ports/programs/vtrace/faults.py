# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "reward": [("rewards.clip(-1, 1)[..., None]", "rewards[..., None]")],
    "reset": [
        ("hidden.where(~begins, 0.0), cell.where(~begins, 0.0)", "hidden.where(~begins, 0.0), cell")
    ],
    "forget": [("    b[2 * UNITS : 3 * UNITS] -= 1.0  # <- forget\n", "")],
    "clipped": [("    rho = rho.clip(max=1.0)", "    rho = rho.clip(max=2.0)")],
    "trace": [("discount[t] * rho[t] * error", "discount[t] * error")],
    "next": [("after = torch.cat([target[1:], last[None]])", "after = target")],
    "stopped": [
        ("return target.detach(), advantage.detach()", "return target.detach(), advantage")
    ],
    "half": [("(target - value[:-1]).square().sum() / 2", "(target - value[:-1]).square().sum()")],
    "entropy": [("- EXPLORE * entropy", "+ EXPLORE * entropy")],
    "inside": [("(square.sqrt() + 0.01)", "(square + 0.01).sqrt()")],
}
