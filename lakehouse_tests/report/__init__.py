"""The report: every figure on the page is one of the sources', and nothing else gets onto it."""
