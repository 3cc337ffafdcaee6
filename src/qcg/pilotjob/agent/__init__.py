"""The long-lived shell around host/ on a node: ZeroMQ, batches, reconnecting."""
