"""How conversations are named, and what a running turn knows of its own."""
