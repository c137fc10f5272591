"""Routes of a server: their files, versions, states, and what runs them."""
