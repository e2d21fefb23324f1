"""Reading what users give and writing what they keep: bounded, locked, never half there."""
