"""The documentation's site, built from the Markdown in this repository: `python -m tools.site`, `make docs`.

No generator beyond what Slackwater's own dependencies bring (markdown-it and pygments come with rich), no network, no
script but the search's. Every link is checked: a page, a heading, a file or a picture that is not there is an error.
"""
