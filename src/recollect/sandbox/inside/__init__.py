"""The inside of the sandbox: standard library only, no import of anything of the host's side."""
