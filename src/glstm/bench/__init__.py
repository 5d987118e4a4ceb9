"""Speed, always compared with a peer in the same process, and always as a ratio."""
