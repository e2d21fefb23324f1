"""Language models: the embedded one, loading of any other, and how attention is plugged into all of them."""
