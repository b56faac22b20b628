"""What is new in databases and topics: batches, each in one commit with where the next one begins."""
