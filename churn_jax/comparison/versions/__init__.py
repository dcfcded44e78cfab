"""Every version of a folder against every other."""
