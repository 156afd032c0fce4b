# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "mean": [("F.rms_norm(x, (MODEL,), scale, eps)", "F.layer_norm(x, (MODEL,), scale, eps=eps)")],
    "sides": [("(distance > 0) * number", "(distance < 0) * number")],
    "distance": [("np.log(FURTHEST / exact)", "np.log(FURTHEST * 8 / exact)")],
    "scale": [("logits.softmax(-1), v", "(logits / k.shape[-1] ** 0.5).softmax(-1), v")],
    "shared": [
        (
            "h, h, bias)\n        x = x + feed_forward",
            'h, h, bias if layer is w["layers"][0] else None)\n        x = x + feed_forward',
        )
    ],
    "memory": [
        ('return norm(x, w["final"])  # <- memory', "return x  # <- memory"),
        (
            "torch.autograd.grad(loss, flat)",
            "torch.autograd.grad(loss, flat, materialize_grads=True)",
        ),
    ],
    "output": [("out * MODEL**-0.5, w", "out, w")],
}
