"""What Parley costs: each file measures one thing and stands alone."""
