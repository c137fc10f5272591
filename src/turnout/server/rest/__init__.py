"""What HTTP is answered: one module for each noun."""
