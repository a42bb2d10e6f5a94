"""A trained model behind HTTP, by Ray Serve: `settings`, `bodies` that clients send, and the `service`."""
