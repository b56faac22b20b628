"""One page about the whole lakehouse: figures are collected from logs, then drawn. Rows are never read."""
