"""A sampler over vLLM servers: tokens in, tokens out, weights by files on storage that all of them see."""
