"""The command line: one file a verb. Importing any of them does nothing."""
