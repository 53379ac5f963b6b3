"""The evaluation network of a program: its forward part as it predicts, for sessions and every format alike."""

from .adapters import adapters_of, merged_values, without_adapters
from .averages import averaged_values, averages_of, with_averages
from .network import Evaluation, evaluation, loss_node, trained_network

__all__ = [
    "Evaluation",
    "adapters_of",
    "averaged_values",
    "averages_of",
    "evaluation",
    "loss_node",
    "merged_values",
    "trained_network",
    "with_averages",
    "without_adapters",
]
