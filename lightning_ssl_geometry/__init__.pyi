"""What type checkers and editors know of the names that `__getattr__` finds; a test holds both equal."""

from lightning_ssl_geometry import callbacks as callbacks
from lightning_ssl_geometry import data as data
from lightning_ssl_geometry import diagnose as diagnose
from lightning_ssl_geometry import diagnostics as diagnostics
from lightning_ssl_geometry import functional as functional
from lightning_ssl_geometry import loggers as loggers
from lightning_ssl_geometry import losses as losses
from lightning_ssl_geometry import measuring as measuring
from lightning_ssl_geometry import methods as methods
from lightning_ssl_geometry import nn as nn
from lightning_ssl_geometry import plots as plots
from lightning_ssl_geometry import report as report
from lightning_ssl_geometry import testing as testing
from lightning_ssl_geometry import views as views
from lightning_ssl_geometry.callbacks import *
from lightning_ssl_geometry.data import *
from lightning_ssl_geometry.diagnose import choose as choose
from lightning_ssl_geometry.diagnose import compare as compare
from lightning_ssl_geometry.diagnose import diagnosis_monitor as diagnosis_monitor
from lightning_ssl_geometry.diagnose import folder_of_images as folder_of_images
from lightning_ssl_geometry.diagnose import load_weights as load_weights
from lightning_ssl_geometry.diagnostics import *
from lightning_ssl_geometry.loggers import *
from lightning_ssl_geometry.losses import *
from lightning_ssl_geometry.measuring import *
from lightning_ssl_geometry.methods import *
from lightning_ssl_geometry.nn import *
from lightning_ssl_geometry.report import comparison_figures as comparison_figures
from lightning_ssl_geometry.report import figures as figures
from lightning_ssl_geometry.report import read_run as read_run
from lightning_ssl_geometry.report import remarks as remarks
from lightning_ssl_geometry.report import summary_table as summary_table
from lightning_ssl_geometry.report import write_card as write_card
from lightning_ssl_geometry.report import write_comparison as write_comparison
from lightning_ssl_geometry.report import write_report as write_report
from lightning_ssl_geometry.views import *

__version__: str
