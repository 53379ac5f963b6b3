"""The reader's own network, as small as it can be and have what the pages name: `conv2`, `layer1`, a BatchNorm."""

import mindspore as ms
from mindspore import nn, ops


class MyNetwork(nn.Cell):
    """Logits (N, 10) of images (N, 1, 8, 8)."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, has_bias=True)
        self.layer1 = nn.SequentialCell(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.conv2 = nn.Conv2d(4, 4, 3, has_bias=True)
        self.pool = nn.MaxPool2d(4, 4)
        self.flatten = nn.Flatten()
        self.fc = nn.Dense(16, 10)

    def construct(self, images):
        features = self.layer1(ops.relu(self.conv1(images)))
        return self.fc(self.flatten(self.pool(ops.relu(self.conv2(features)))))


class WithLoss(nn.Cell):
    """A forward graph that returns its loss; the backbone can be frozen by name."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Dense(6, 8, activation="relu")
        self.head = nn.Dense(8, 3)
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def construct(self, x, label):
        return self.loss(self.head(self.backbone(x)), label)


class Tokens(nn.Cell):
    """The mean loss over the tokens that a mask, the third input, lets count."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.head = nn.Dense(6, 11)
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True)

    def construct(self, tokens, targets, mask):
        logits = self.head(self.embedding(tokens)).reshape((-1, 11))
        return (self.loss(logits, targets.reshape((-1,))) * mask.reshape((-1,))).sum() / mask.sum()


def momentum(network):
    return nn.Momentum(network.trainable_params(), learning_rate=0.01, momentum=0.9)


def training_cell():
    network = MyNetwork()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return nn.TrainOneStepCell(nn.WithLossCell(network, loss), momentum(network)).set_train()


def tokens_cell():
    network = Tokens()
    return nn.TrainOneStepCell(network, momentum(network)).set_train()


def zeros(shape, dtype=ms.float32):
    return ms.Tensor(shape=shape, dtype=dtype, init="zeros").init_data()
