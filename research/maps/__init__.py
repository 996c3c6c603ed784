"""How well maps find what a card shows, judged by the pixels that the drawn world knows."""
