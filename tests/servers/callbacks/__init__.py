"""The tests of the user's callbacks: what servers ask of them, and what they tell them."""
