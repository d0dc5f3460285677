"""Late data: when a window's result is corrected, how long the window is kept, and what comes after that."""
