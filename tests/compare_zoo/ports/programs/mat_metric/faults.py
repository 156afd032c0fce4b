# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "pre_norm": [("x = dense(h, down) + x", "x = dense(h, down) + c")],
    "key_momentum": [("torch.lerp(o.detach(), s, 0.7)", "torch.lerp(s, o.detach(), 0.7)")],
    "queue_position": [("torch.cat([bank[6:], keys])", "torch.cat([bank[:6], keys])")],
    "self_pair": [
        (
            "same & ~torch.eye(len(y), dtype=torch.bool)",
            "same | torch.eye(len(y), dtype=torch.bool)",
        )
    ],
    "rms_epsilon": [("s.sqrt().add_(1e-2)", "s.add(1e-2).sqrt_()")],
}
