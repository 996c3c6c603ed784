"""Models whose text encoder learned a bias, and a method that names the encoder with the bias."""
