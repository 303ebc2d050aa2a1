"""The code blocks of a Markdown page."""

import re


def blocks(text, language):
    """Find the fenced blocks of a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
