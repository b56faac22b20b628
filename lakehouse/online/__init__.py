"""Features online: the newest row of each entity in Redis, loaded from Delta, served, and compared with Delta."""
