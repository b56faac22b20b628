"""Features joined to labels by time, so that a model learns from nothing that was not known then."""
