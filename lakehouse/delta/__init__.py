"""The Delta log, on `store`: snapshots, commits, conflicts, maintenance. Knows no contract and no engine."""
