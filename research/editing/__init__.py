"""What edited heads cost, next to ablated heads, over the benchmark's models with known bias."""
