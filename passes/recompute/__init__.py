"""Recompute: parts of the forward part run again in the backward part, so that what they compute need not be kept.

``recompute`` is the pass; ``candidates`` says what may run again, ``segments`` cuts the forward part at its narrow
places, ``choice`` decides what to keep inside a segment, ``clones`` writes it, ``budget`` finds the plan that fits.
"""

from .recompute import Recompute

__all__ = ["Recompute"]
