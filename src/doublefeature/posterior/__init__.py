"""Stored draws and what follows from them."""
