"""Pipelines from configuration files, mindspore.boost's among them."""
