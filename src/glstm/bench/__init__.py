"""Speed, always side by side with a peer in one process, and always as a ratio."""
