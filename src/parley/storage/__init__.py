"""Where a profile's rows are kept: one contract, and the engines that keep it."""
