"""Files at rest: what is written here is on the disk when a call returns, or not there at all."""
