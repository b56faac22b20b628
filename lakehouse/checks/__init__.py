"""What is measured of staged rows and judged: metrics, anomalies, drift, clocks, the audit."""
