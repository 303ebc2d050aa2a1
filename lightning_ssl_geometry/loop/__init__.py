"""Diagnostics around any training loop, without Lightning's Trainer."""

__all__ = ["GeometryLoop"]

from lightning_ssl_geometry.loop.geometry_loop import GeometryLoop
