"""The routes of Arbor: clients such as DSPy train a model through the server that samples for them."""
