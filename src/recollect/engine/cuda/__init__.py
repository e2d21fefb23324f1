"""The engine on a GPU: compiled layers, decoding under CUDA graphs, attention kernels in Triton."""
