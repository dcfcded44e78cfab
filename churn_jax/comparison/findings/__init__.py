"""What a comparison shows beside its numbers: groups, flips, flows, curves."""
