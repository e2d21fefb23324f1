"""recollect from Python: what `import recollect` offers, each a function over the parts that the command line uses."""
