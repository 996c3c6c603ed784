"""Models whose text encoder learned a skew, and the encoder that `clip-ccs localize --towers both` names."""
