"""A live server: put under load, read, fitted, and compared with what is predicted of it."""
