"""How the two organisms were trained, and what they show."""

ORGANISM, CONTROL = "organism", "organism-control"
