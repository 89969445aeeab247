"""What tests of crashes share: what clients know, what they do, and how a rebuilt folder is judged."""
