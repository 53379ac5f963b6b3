"""`make test-gpu`, `make test-ascend`: a device that is really there, from single operations to whole trainings.

`python -m tests.devices.card --device GPU` goes through the steps in this order, so that the first one that fails tells
where the fault lies: operations against numpy (operations.py), compiled against native training, both on the device
(training.py), the same with files that the device itself exported, boost-verify's properties (promises.py), and speed
(speed.py). It prints tables. With `--device CPU`, or on the stand-in for a GPU, the same steps run without a card.
"""
