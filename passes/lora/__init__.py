"""LoRA: the pass, how it finds the products that a weight takes part in, and how adapters are put beside them."""

from .lora import LoRA

__all__ = ["LoRA"]
