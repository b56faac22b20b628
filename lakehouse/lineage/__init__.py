"""Where rows and columns come from, what a change reaches, and whether sums add up."""
