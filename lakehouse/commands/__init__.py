"""The commands of `lakehouse`, a module a family. Nothing heavy is imported before a command runs."""
