"""Column helpers that transforms share. A change here changes the code version of the tables that import it."""
