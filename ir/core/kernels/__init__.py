"""The kernels that MindSpore has for each target, as its own plug-ins list them: one text file a target."""

from .table import Kernel, Kernels, kernels

__all__ = ["Kernel", "Kernels", "kernels"]
