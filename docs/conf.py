"""Sphinx's settings: `nox -s docs` builds the site."""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from lightning_ssl_geometry import __version__

project = "lightning-ssl-geometry"
release = __version__
copyright = "the authors of lightning-ssl-geometry, Apache-2.0"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "myst_nb",  # myst_parser, and the notebook
    "sphinx_copybutton",
    "extension",
]

default_role = "code"  # single backticks are code, in docstrings as in Markdown
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
myst_heading_anchors = 3

docs = Path(__file__).parent
shutil.copy(docs.parent / "examples" / "notebook.ipynb", docs / "notebook_example.ipynb")  # Sphinx reads this folder
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300  # seconds for a cell
nb_output_stderr = "remove"  # Lightning's messages
nb_merge_streams = True

html_theme = "furo"
html_title = "lightning-ssl-geometry"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
