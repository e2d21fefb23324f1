"""What commands do from beginning to end, where they combine several parts."""
