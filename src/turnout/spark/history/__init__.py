"""What a route did, or would have done, over records that are stored."""
