"""The Delta log on that store: snapshots, commits, conflicts, maintenance. Knows no contract and no engine."""
