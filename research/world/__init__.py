"""How the two organisms were trained, and what they show."""
