"""Layers for Hugging Face's `kernels`, on the kernwright that is installed."""

from . import layers

__all__ = ["layers"]
