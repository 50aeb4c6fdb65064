"""Compare the supervisor with Erlang/OTP's: recordings of OTP are replayed on it, and random programs run on both."""
