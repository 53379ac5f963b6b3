"""MindSpore on a card that CUDA 11 does not know, on a machine with CUDA 13 and cuDNN 9, which may have no network.

MindSpore 2.10 is linked with CUDA 11 and cuDNN 8, and its kernels have machine code up to compute capability 8.0. Three
things bring it to a newer card. Libraries with the old names pass each call on to the new ones (`shims.py`).
MindSpore's kernels are assembled for the card from the PTX that stands beside the old code (`assemble.py`). And of the
2.5 GB of MindSpore, that part is carried which a run on a GPU loads (`carry.py`).
`python -m tests.devices.newer_card FOLDER` makes all of it; docs/devices.md says how.
"""
