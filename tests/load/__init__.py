"""Many calls to a server that is killed again and again, each counted where it is carried out."""
