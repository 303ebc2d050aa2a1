"""What the observed batches become: the measurements of a stage, their failures and their readout.

:class:`GeometryLoop` drives them in a loop of your own; GeometryMonitor drives the same from Lightning's hooks.
"""

__all__ = ["GeometryLoop"]

from lightning_ssl_geometry.measuring.geometry_loop import GeometryLoop
