"""One file per table or figure of the paper: found by name, imported by nobody. See `romae list`."""
