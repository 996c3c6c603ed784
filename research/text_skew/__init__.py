"""Models whose text encoder learned a skew, and the encoder that `localize --encoders both` names."""
