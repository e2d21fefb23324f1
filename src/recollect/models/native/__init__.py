"""What is computed by functions of our own on CPUs, compiled by the machine's own compiler on first use."""
