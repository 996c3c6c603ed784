"""How the embedded model of photographs was trained."""
