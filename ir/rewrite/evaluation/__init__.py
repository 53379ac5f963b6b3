"""The evaluation network of a program: its forward part as it predicts, for sessions and every format alike."""

from .adapters import adapters_of, merged_values, without_adapters
from .averages import averaged_values, averages_of, with_averages
from .label_note import note_label
from .network import Evaluation, LabelWarning, evaluation, loss_node
from .weights import check_weights, network_of, values_of

__all__ = [
    "Evaluation",
    "LabelWarning",
    "adapters_of",
    "averaged_values",
    "averages_of",
    "check_weights",
    "evaluation",
    "loss_node",
    "merged_values",
    "network_of",
    "note_label",
    "values_of",
    "with_averages",
    "without_adapters",
]
