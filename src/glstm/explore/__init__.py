"""A page on which a trained network can be looked at and tried: `gather` collects its data, `page` makes the page."""
