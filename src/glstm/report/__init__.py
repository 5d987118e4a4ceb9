"""From results/*.json to tables, figures and a page. Nothing here imports a model: every number comes from the JSON."""
