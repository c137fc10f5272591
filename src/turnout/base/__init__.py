"""Parts that every package may use: files, clocks, caches, background tasks, text for terminals."""
