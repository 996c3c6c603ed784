"""Models whose text tower alone learned a skew, and which tower `clip-ccs localize --towers both` blames."""
