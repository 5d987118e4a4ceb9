"""The command line: one file per verb. Importing them has no effect."""
