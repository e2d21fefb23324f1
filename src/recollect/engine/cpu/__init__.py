"""The engine on a CPU: attention and decoding in compiled functions."""
