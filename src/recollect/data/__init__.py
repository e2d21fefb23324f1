"""Where tasks come from: files that users bring and documents that we make."""
