"""Who somebody is, what they may do, and what they did."""
