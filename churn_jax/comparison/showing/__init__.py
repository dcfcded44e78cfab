"""A comparison in words, tables, a page and a record."""
