"""What generates for each role: the engine of this process, an endpoint, a server of our own."""
