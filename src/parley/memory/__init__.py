"""What Parley remembers of people and conversations, and how that is tended."""
