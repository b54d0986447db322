"""One file per figure or table of the paper; results are tables, pictures and judged claims."""
