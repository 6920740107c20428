# SPDX-License-Identifier: Apache-2.0
"""Sphinx makes the site of the pages that scripts/docs_docs_site.py has copied here."""

import os

project = "kvmem"
author = "kvmem"
copyright = "the kvmem authors, Apache-2.0"
version = release = os.environ["KVMEM_VERSION"]

extensions = ["myst_parser"]
myst_heading_anchors = 4
# Names of code are in backticks, and no language of a fence is guessed.
highlight_language = "text"
pygments_style, pygments_dark_style = "friendly", "github-dark"
# A link to a page or heading that does not exist is an error, as is a page that no list has.
nitpicky = True

html_theme = "furo"
html_title = f"kvmem {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
# Without links to a repository.
html_theme_options = {"top_of_page_buttons": []}
