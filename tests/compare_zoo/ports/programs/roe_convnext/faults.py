# SPDX-License-Identifier: Apache-2.0
"""Five porting mistakes for the channels-last ConvNeXt."""

FAULTS = {
    # the means and deviations are those of BGR pictures
    "channel_order": [("torch.tensor(PIXEL_MEAN)", "torch.tensor(PIXEL_MEAN[::-1])"),
                      ("torch.tensor(PIXEL_STD)", "torch.tensor(PIXEL_STD[::-1])")],
    # the last norm stands before the pooling
    "norm_before_pool": [('norm(x.mean(1), p["ln.0"], p["ln.1"])', 'norm(x, p["ln.0"], p["ln.1"]).mean(1)')],
    # the smoothing is spread over the other classes only
    "smoothing_spread": [("hot * (1 - SMOOTHING) + SMOOTHING / CLASSES", "hot * (1 - SMOOTHING) + (1 - hot) * SMOOTHING / (CLASSES - 1)")],
    # the rate is inside the velocity, as in TensorFlow, while the rate changes
    "velocity_form": [("MOMENTUM * buffers[k] + g", "MOMENTUM * buffers[k] + lr * g"),
                      ("sub_(lr * (g + MOMENTUM * buffers[k]))", "sub_(lr * g + MOMENTUM * buffers[k])")],
    # the teacher follows the weights of before the step
    "ema_before_step": [("    momentum_step(student, grads, buffers, lr)  # <- velocity_form ema_before_step\n    follow(teacher, student)  # <- ema_before_step\n",
                         "    follow(teacher, student)  # <- ema_before_step\n    momentum_step(student, grads, buffers, lr)  # <- velocity_form ema_before_step\n")],
}
