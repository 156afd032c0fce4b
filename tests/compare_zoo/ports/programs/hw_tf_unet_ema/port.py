# SPDX-License-Identifier: Apache-2.0
"""Keras port of the disc U-Net: channels last, decoder inputs swapped, swish with its own gradient, shadow weights."""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
from tensorflow import keras

tf.debugging.experimental.enable_dump_debug_info(sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1)
L = keras.layers
S, N, W = 16, 6, 8


@tf.custom_gradient
def swish(x):
    # keeps x only; the sigmoid is computed again on the way back
    def grad(dy):
        s = tf.sigmoid(x)
        return dy * s * (1.0 + x * (1.0 - s))
    return x * tf.sigmoid(x), grad


class Unit(L.Layer):
    def __init__(self, filters):
        super().__init__()
        self.conv = L.Conv2D(filters, 3, padding="same")

    def call(self, x):
        return swish(self.conv(x))


class UNet(keras.Model):
    def __init__(self):
        super().__init__()
        self.down = [Unit(W), Unit(2 * W)]
        self.bottom = Unit(4 * W)
        self.grow = [L.Conv2DTranspose(2 * W, 2, 2), L.Conv2DTranspose(W, 4, 2, padding="same")]
        self.up = [Unit(2 * W), Unit(W)]
        self.pool, self.join = L.MaxPooling2D(), L.Concatenate()
        self.score = L.Dense(1)

    def call(self, x):
        skips = []
        for block in self.down:
            skips.append(block(x))
            x = self.pool(skips[-1])
        x = self.bottom(x)
        for grow, block in zip(self.grow, self.up):
            x = block(self.join([grow(x), skips.pop()]))
        return self.score(x)[..., 0]


def restore(net, path):
    w = dict(np.load(path))

    def put(layer, name, kernel):
        layer.set_weights([kernel(w[name + ".weight"]), w[name + ".bias"]])

    oihw = lambda a: a.transpose(2, 3, 1, 0)
    blocks = {"enc1": net.down[0], "enc2": net.down[1], "mid": net.bottom, "dec2": net.up[0], "dec1": net.up[1]}
    for name, block in blocks.items():
        # the decoders see (grown, skip) where torch sees (skip, grown)
        swap = (lambda a: oihw(np.roll(a, a.shape[1] // 2, axis=1))) if name.startswith("dec") else oihw
        put(block.conv, name + ".0", swap)
    put(net.grow[0], "up2", lambda a: a.transpose(2, 3, 1, 0))
    put(net.grow[1], "up1", lambda a: a.transpose(2, 3, 1, 0))
    put(net.score, "head", lambda a: a[:, :, 0, 0].T)


def criterion(mask, logits):
    entropy = tf.nn.weighted_cross_entropy_with_logits(mask, logits, pos_weight=2.0)
    p = tf.sigmoid(logits)
    overlap = tf.einsum("nhw,nhw->n", p, mask)
    area = tf.reduce_sum(p + mask, axis=[1, 2])
    return tf.reduce_mean(entropy) + tf.reduce_mean((area - 2.0 * overlap) / (area + 1.0))


net = UNet()
net(tf.zeros((1, S, S, 1)))
restore(net, sys.argv[1])
weights = net.trainable_variables
shadow = [tf.Variable(tf.convert_to_tensor(v), trainable=False) for v in weights]
optimizer = keras.optimizers.AdamW(3e-3, weight_decay=0.02, epsilon=1e-10)
optimizer.build(weights)


@tf.function
def train_step(images, masks):
    with tf.GradientTape() as tape:
        loss = criterion(masks, net(images, training=True))
    keep = tf.where(optimizer.iterations > 0, 0.9, 0.0)  # the first step's weights are taken whole
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    for s, v in zip(shadow, weights):
        s.assign(keep * s + (1.0 - keep) * v)
    return loss


def disc_batch(rs):
    box = [rs.uniform(lo, hi, size=(N, 1, 1)) for lo, hi in ((4, 12), (4, 12), (2, 5))]
    rows, cols = np.arange(S).reshape(1, S, 1), np.arange(S).reshape(1, 1, S)
    inside = np.square(rows - box[0]) + np.square(cols - box[1]) < np.square(box[2])
    noisy = inside + 0.5 * rs.randn(N, S, S)
    return tf.constant(noisy[..., None], tf.float32), tf.constant(inside, tf.float32)


rs = np.random.RandomState(55)
losses = []
for _ in range(4):
    losses.append(train_step(*disc_batch(rs)).numpy().item())

for s, v in zip(shadow, weights):
    v.assign(s)
images, masks = disc_batch(rs)
final = float(criterion(masks, net(images, training=False)))
print(losses)
