"""Lightning Callbacks that compute diagnostics, evaluate representations and write reports."""

__all__ = [
    "ChannelEvaluation",
    "CollapseGuard",
    "EmbeddingSnapshots",
    "EmbeddingWriter",
    "GeometryMonitor",
    "Host",
    "KNNProbe",
    "LayerGeometry",
    "LinearEvaluation",
    "LinearProbe",
    "RunReport",
    "last_checkpoint",
]

from lightning_ssl_geometry.callbacks.channel_evaluation import ChannelEvaluation
from lightning_ssl_geometry.callbacks.collapse_guard import CollapseGuard
from lightning_ssl_geometry.callbacks.embedding_writer import EmbeddingWriter
from lightning_ssl_geometry.callbacks.last import last_checkpoint
from lightning_ssl_geometry.callbacks.layer_geometry import LayerGeometry
from lightning_ssl_geometry.callbacks.linear_evaluation import LinearEvaluation
from lightning_ssl_geometry.callbacks.monitor import GeometryMonitor
from lightning_ssl_geometry.callbacks.probes import KNNProbe, LinearProbe
from lightning_ssl_geometry.callbacks.run_report import RunReport
from lightning_ssl_geometry.callbacks.snapshots import EmbeddingSnapshots
from lightning_ssl_geometry.observe.host import Host
