"""The evaluation network of a program: its forward part as it predicts, for sessions and every format alike."""

from .network import Evaluation, evaluation, loss_node, trained_network

__all__ = ["Evaluation", "evaluation", "loss_node", "trained_network"]
