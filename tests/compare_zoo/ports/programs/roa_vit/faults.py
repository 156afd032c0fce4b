# SPDX-License-Identifier: Apache-2.0
"""Five mistakes for the vision transformer port."""

FAULTS = {
    "patch_order": [("flat = kernel.permute(0, 2, 3, 1).reshape(len(kernel), -1)", "flat = kernel.reshape(len(kernel), -1)")],
    "cls_position": [("cls = (self.cls + self.table[0]).expand(", "cls = self.cls.expand(")],
    "smoothing_others": [
        ("classes), amount / classes)", "classes), amount / (classes - 1))"),
        ("1 - amount + amount / classes)", "1 - amount)"),
    ],
    "coupled_decay": [
        (
            "torch._foreach_mul_(self.params, 1 - self.lr * self.decay)",
            "grads = torch._foreach_add(grads, self.params, alpha=self.decay)",
        )
    ],
    "ema_before_step": [
        (
            "    opt.step(grads)\n    torch._foreach_lerp_(average, [p.detach() for p in weights], 0.2)  # <- ema_before_step\n",
            "    torch._foreach_lerp_(average, [p.detach() for p in weights], 0.2)  # <- ema_before_step\n    opt.step(grads)\n",
        )
    ],
}
