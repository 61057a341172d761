"""Ways into a process that trains, and what is known of one that does not train yet."""
