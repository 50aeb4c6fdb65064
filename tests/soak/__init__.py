"""Many real servers, and everything that happens to them in months, in a minute or an hour."""
