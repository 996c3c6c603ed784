"""CLIP models: loading, embedding, decomposition, ablation, and edits."""
