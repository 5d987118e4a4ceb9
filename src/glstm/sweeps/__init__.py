"""Many recipes, of which validation says which is the best: a grid, or a search that learns from what it has seen."""
