"""How well heat maps locate the objects of synthetic scenes, whose masks are known."""
